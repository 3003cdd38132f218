"""What fairseq uses of an older numpy."""

from __future__ import annotations

import types
from typing import Any


def restore_older_numpy() -> None:
    """Give three of fairseq's data modules, and only them, what they use of an older numpy.

    `--sample-break-mode eos` needs `np.compat.long`, `--num-batch-buckets` that and an old
    argument of `np.percentile`.
    """
    import numpy as np
    from fairseq.data import data_utils, language_pair_dataset, token_block_dataset

    class OlderNumpy(types.ModuleType):
        compat = types.SimpleNamespace(long=int)

        @staticmethod
        def percentile(a: Any, q: Any, interpolation: Any) -> Any:
            return np.percentile(a, q, method=interpolation)

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

    for module in (data_utils, language_pair_dataset, token_block_dataset):
        if module.np is np:
            module.np = OlderNumpy("numpy")
