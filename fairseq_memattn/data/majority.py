"""The synthetic task MAJORITY(L, p) of GMAT (section 3.1): sequences and their tags."""

from dataclasses import dataclass

import numpy as np

from fairseq_memattn.data.generated_dataset import SPLITS, Integers


@dataclass(frozen=True)
class Majority:
    """MAJORITY(length, pairs). An example depends on the seed, the split and its number only.

    length: L, the number of integers in a sequence
    pairs: p; the integers are from 1 to 2p and form the pairs (1, 2), (3, 4), ..., (2p - 1, 2p)
    """

    length: int
    pairs: int
    seed: int = 1

    def example(self, split: str, number: int, epoch: int) -> tuple[Integers, Integers]:
        """A sequence (L,) and its tags (L,)."""
        sequence = self.sequence(split, number, epoch)
        return sequence, self.tags(sequence)

    def sequence(self, split: str, number: int, epoch: int = 0) -> Integers:
        """(L,) integers, drawn uniformly and independently, as in the paper.

        Short sequences may occur more than once by chance.

        epoch: each value gives different examples
        """
        key = (self.seed, SPLITS.index(split), epoch, number)
        return np.random.default_rng(key).integers(1, 2 * self.pairs + 1, self.length)

    def tags(self, sequence: Integers) -> Integers:
        """(L,), the majority of each integer: the more frequent integer of its pair.

        For even i, maj(i - 1) = maj(i) = i - 1 if N(i - 1) >= N(i), else i. N(i) is the number of
        occurrences of i in the sequence.
        """
        odd, even = np.bincount(sequence - 1, minlength=2 * self.pairs).reshape(-1, 2).T
        first = 2 * np.arange(self.pairs) + 1
        winner = np.where(odd >= even, first, first + 1)
        return winner[(sequence - 1) // 2]
