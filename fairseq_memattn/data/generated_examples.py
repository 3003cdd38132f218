"""What examples that are generated on demand have in common."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
SPLITS = ("train", "valid", "test")


class Examples(Protocol):
    """Examples of one length, each of which depends on the split, its number and the epoch only."""

    @property
    def length(self) -> int: ...

    def example(self, split: str, number: int, epoch: int) -> tuple[Integers, Integers]:
        """The symbols (length,) of a sequence and those of its targets."""
        ...
