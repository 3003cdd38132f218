"""What fairseq uses of an older numpy."""

import types
from typing import Any


class OlderNumpy(types.ModuleType):
    """An older numpy's `compat.long` and `percentile`.

    `--sample-break-mode eos` and `--num-batch-buckets` need them. It stands for numpy in a module
    of fairseq; numpy itself does not change.
    """

    compat = types.SimpleNamespace(long=int)

    def __init__(self, numpy: Any) -> None:
        super().__init__("numpy")
        self._numpy = numpy

    def percentile(self, a: Any, q: Any, interpolation: Any) -> Any:
        return self._numpy.percentile(a, q, method=interpolation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._numpy, name)
