"""T5's sentinels: symbols of a dictionary that replace the removed spans of a text."""

from typing import Any

import numpy as np

from fairseq_memattn.errors import MemAttnError

MOST_SENTINELS = 100_000  # T5 has 100


def add_sentinels(dictionary: Any, count: int) -> np.ndarray:
    """The indices (count,) of `<extra_id_0>`, `<extra_id_1>`, ... in a fairseq dictionary.

    If the dictionary has none of them, they are added at its end in T5's order, in which
    `<extra_id_0>` is the last symbol. If it has all of them, as the dictionary of a converted T5,
    it is not changed.

    Raises MemAttnError for a dictionary that has only some of them.
    """
    names = [f"<extra_id_{number}>" for number in range(count)]
    missing = [name for name in names if name not in dictionary]
    if 0 < len(missing) < count:
        raise MemAttnError(
            f"the dictionary has {count - len(missing)} of the {count} symbols of --sentinels "
            f"{count}, but not {missing[0]}; set --sentinels to the number that it has, and do "
            "not binarise text that contains such symbols"
        )
    for name in reversed(missing):
        dictionary.add_symbol(name)
    return np.array([dictionary.index(name) for name in names])
