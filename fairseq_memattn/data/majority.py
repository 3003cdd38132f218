"""The synthetic task MAJORITY(L, p) of GMAT (section 3.1): sequences and their tags."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Majority:
    """MAJORITY(length, pairs), each example a function of the seed, the split and its number.

    length: L, the integers of a sequence
    pairs: p; the integers are 1 to 2p, and the pairs (1, 2), (3, 4), ..., (2p - 1, 2p) compete
    """

    length: int
    pairs: int
    seed: int = 1

    def sequence(self, split: str, number: int, epoch: int = 0) -> Integers:
        """(L,) integers, each drawn uniformly and independently, as the paper has it.

        Two examples are the same only by chance; on short sequences that happens.
        epoch: another number gives other examples
        """
        key = (self.seed, SPLITS.index(split), epoch, number)
        return np.random.default_rng(key).integers(1, 2 * self.pairs + 1, self.length)

    def tags(self, sequence: Integers) -> Integers:
        """(L,) each integer's majority: the more frequent one of its pair, the odd one of equals.

        maj(i - 1) = maj(i) = i - 1 where N(i - 1) >= N(i), else i, for every even i; N(i) is how
        often i occurs in the sequence.
        """
        odd, even = np.bincount(sequence - 1, minlength=2 * self.pairs).reshape(-1, 2).T
        first = 2 * np.arange(self.pairs) + 1
        winner = np.where(odd >= even, first, first + 1)
        return winner[(sequence - 1) // 2]
