"""How often the parts of a training set (train, train1, ...) are read in an epoch."""

from collections.abc import Sequence

import numpy as np

from fairseq_memattn.documents.ids import Indices
from fairseq_memattn.errors import MemAttnError


class Mixture:
    """The examples that an epoch has of each part.

    A part of N examples is read in passes, each a random order of all of them. An epoch takes the
    next round(weight N), so that all are read equally often, whatever the weight. What an epoch has
    depends on the seed and its number alone, and so does an epoch that is resumed.

    starts: (P,) the first sentence of each part
    weights: (P,) how often an epoch reads each part
    """

    def __init__(self, starts: Sequence[int], weights: Sequence[float], seed: int) -> None:
        self.starts, self.weights, self.seed = np.asarray(starts), weights, seed

    @property
    def is_plain(self) -> bool:
        """Whether each epoch has every example once."""
        return all(weight == 1 for weight in self.weights)

    def draw(self, examples: Indices, sentences: Indices, epoch: int) -> Indices:
        """The examples of an epoch, counted from 1.

        sentences: a sentence of each of the examples, ascending
        Raises MemAttnError if there are none.
        """
        if self.is_plain:
            return examples
        parts = np.split(examples, np.searchsorted(sentences, self.starts[1:]))
        drawn = np.concatenate([self._next(*part, epoch) for part in enumerate(parts)])
        if not len(drawn):
            raise MemAttnError("--sampling-weights leave nothing of the training set")
        return drawn

    def _next(self, number: int, part: Indices, epoch: int) -> Indices:
        if not (count := round(self.weights[number] * len(part))):
            return part[:0]
        begin = (epoch - 1) * count
        first, last = begin // len(part), (begin + count - 1) // len(part)
        passes = [
            np.random.default_rng((self.seed, number, one)).permutation(part)
            for one in range(first, last + 1)
        ]
        start = begin - first * len(part)
        return np.concatenate(passes)[start : start + count]


def weights_of(
    sizes: Sequence[int], given: Sequence[float], temperature: float, primary: int
) -> list[float]:
    """The weight of each part of a training set: the product of what the options say.

    given: of --sampling-weights, none for 1 each
    temperature: T of --sampling-temperature, with which n examples count as n^(1/T) (Arivazhagan et
        al., 2019) and the largest part is read once
    primary: of --upsample-primary, how often the first part is read; at least 1
    Raises MemAttnError for another number of weights than of parts.
    """
    if given and len(given) != len(sizes):
        raise MemAttnError(
            f"--sampling-weights must have a number for each part of the training set, of which "
            f"there {'is 1' if len(sizes) == 1 else f'are {len(sizes)}'} (train, train1, ...), but "
            f"has {len(given)}"
        )
    weights = [(max(sizes) / size) ** (1 - 1 / temperature) for size in sizes]
    weights = [one * other for one, other in zip(weights, given or [1.0] * len(sizes), strict=True)]
    return [max(primary, 1) * weights[0], *weights[1:]]


def numbers_of(text: str) -> list[float]:
    """The numbers of --sampling-weights, with commas between them.

    Raises MemAttnError for other text and for negative numbers.
    """
    try:
        numbers = [float(number) for number in text.split(",") if text]
    except ValueError:
        numbers = [-1.0]
    if not all(0 <= number < np.inf for number in numbers):
        raise MemAttnError(f"--sampling-weights must be numbers such as 1,0.25, but is {text}")
    return numbers
