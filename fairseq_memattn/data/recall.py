"""Associative recall: a sequence states the values of keys, and asks for them later."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from fairseq_memattn.data.generated_dataset import SPLITS, Integers
from fairseq_memattn.errors import MemAttnError


@dataclass(frozen=True)
class Recall(ABC):
    """Sequences of pairs, noise and queries, and the values that answer the queries.

    A pair is a key, followed by its value. A query is a key of one of the pairs, and its target is
    the value. Keys of a sequence differ; all symbols are drawn uniformly. An example depends on the
    seed, the split and its number only.

    The symbols are integers: 0 is no target, then come the keys, the values and the noise.

    length: number of symbols of a sequence
    pairs: number in a sequence of valid and test; train draws a number from `least_pairs` to it
    queries: largest number in a sequence; a pair has at most one query
    keys, values, noise: sizes of the three sets of symbols
    """

    length: int
    pairs: int
    queries: int
    keys: int
    values: int
    noise: int
    least_pairs: int
    seed: int = 1

    def __post_init__(self) -> None:
        for name, value, limit, most in (
            ("pairs", self.pairs, "key-symbols", self.keys),  # the keys of a sequence differ
            ("least-pairs", self.least_pairs, "pairs", self.pairs),
            ("queries", self.queries, "pairs", self.pairs),
        ):
            if value > most:
                raise MemAttnError(f"--{name} must be at most --{limit} {most}, but is {value}")
        least = 2 * self.pairs + self.queries
        if self.length < least:
            raise MemAttnError(
                f"--length must be at least {least}, which is 2 x --pairs {self.pairs} + --queries "
                f"{self.queries}, but is {self.length}"
            )

    @property
    def symbols(self) -> list[str]:
        """The names of the symbols from 1."""
        sizes = {"key": self.keys, "value": self.values, "noise": self.noise}
        return [f"{kind}{i}" for kind, size in sizes.items() for i in range(1, size + 1)]

    def example(self, split: str, number: int, epoch: int = 0) -> tuple[Integers, Integers]:
        """A sequence (length,) and its targets (length,), 0 where there is none.

        epoch: each value gives different examples
        """
        key = (self.seed, SPLITS.index(split), epoch, number)
        rng = np.random.default_rng(key)
        first_noise = 1 + self.keys + self.values
        source = rng.integers(first_noise, first_noise + self.noise, self.length)
        target = np.zeros(self.length, np.int64)
        least = self.least_pairs if split == "train" else self.pairs
        pairs = int(rng.integers(least, self.pairs + 1))
        queries = min(self.queries, pairs)
        keys = 1 + rng.choice(self.keys, pairs, replace=False)
        values = 1 + self.keys + rng.integers(self.values, size=pairs)
        starts, asked = self.places(rng, pairs, queries)
        source[starts], source[starts + 1] = keys, values
        which = rng.choice(pairs, queries, replace=False)
        source[asked], target[asked] = keys[which], values[which]
        return source, target

    @abstractmethod
    def places(
        self, rng: np.random.Generator, pairs: int, queries: int
    ) -> tuple[Integers, Integers]:
        """The positions of the keys of the pairs (pairs,), and of the queries (queries,)."""


class MultiQueryRecall(Recall):
    """All pairs, then queries at random places of noise: multi-query associative recall.

    After Arora et al., 2024, *Zoology: Measuring and improving recall in efficient language
    models*, section 4. There the distances of queries follow a power law, and the noise is drawn
    from the symbols of keys and values.
    """

    def places(
        self, rng: np.random.Generator, pairs: int, queries: int
    ) -> tuple[Integers, Integers]:
        asked = rng.choice(np.arange(2 * pairs, self.length), queries, replace=False)
        return 2 * np.arange(pairs), np.sort(asked)


class NeedleRecall(Recall):
    """Pairs at random places of noise, then all queries: needles in a haystack.

    After the multi-key and multi-query needles of Hsieh et al., 2024, *RULER: What's the real
    context size of your long-context language models?*, section 3.1, with symbols for sentences.
    """

    def places(
        self, rng: np.random.Generator, pairs: int, queries: int
    ) -> tuple[Integers, Integers]:
        hay = self.length - queries
        gaps = np.sort(rng.choice(hay - pairs, pairs, replace=False))
        return gaps + np.arange(pairs), np.arange(hay, self.length)


FORMS: dict[str, type[Recall]] = {"multi_query": MultiQueryRecall, "needle": NeedleRecall}
