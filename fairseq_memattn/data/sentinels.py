"""T5's sentinels: symbols of a dictionary that stand for what was cut out of a text."""

from typing import Any

import numpy as np

from fairseq_memattn.errors import MemAttnError


def add_sentinels(dictionary: Any, count: int) -> np.ndarray:
    """The indices (count,) of `<extra_id_0>`, `<extra_id_1>`, ... in a dictionary of fairseq's.

    A dictionary without any gets them at its end, in T5's order: `<extra_id_0>` is the last
    symbol. One that has them, as a converted T5's, stays as it is.
    Raises MemAttnError for a dictionary that has some of them only.
    """
    names = [f"<extra_id_{number}>" for number in range(count)]
    missing = [name for name in names if name not in dictionary]
    if 0 < len(missing) < count:
        raise MemAttnError(
            f"the dictionary has {count - len(missing)} of the {count} symbols of --sentinels "
            f"{count}, but not {missing[0]}: ask for as many as it has, and binarise no text that "
            "holds such symbols itself"
        )
    for name in reversed(missing):
        dictionary.add_symbol(name)
    return np.array([dictionary.index(name) for name in names])
