"""The whole corpus: splits and contrastive sets that share no document."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from fairseq_memattn.data_prep.generated.discourse.balanced_sets import (
    CANDIDATES,
    SEPARATOR,
    Group,
    balanced_set,
    group_count,
)
from fairseq_memattn.data_prep.generated.discourse.generated_documents import (
    DISTANCES,
    EVEN,
    document,
    gaps,
    training,
)
from fairseq_memattn.data_prep.generated.discourse.grammar import Pair
from fairseq_memattn.errors import MemAttnError

Item = TypeVar("Item")
MAX_REPEATS = 1000  # so many repetitions in a row mean that nothing new can be found
SPLITS = ("test", "valid", "train")  # in this order the test set does not depend on train's size


@dataclass(frozen=True)
class Options:
    """What a corpus is made from; the same options give the same bytes."""

    train_docs: int
    valid_docs: int
    test_docs: int
    contrast_groups: int
    min_sentences: int
    max_sentences: int
    seed: int
    name_weight: int
    noun_weight: int
    distances: Sequence[int] = DISTANCES

    @property
    def context(self) -> int:
        """The number of sentences before the current one in a contrastive group."""
        return max(self.distances)


def distinct(
    make: Callable[[], Item], is_new: Callable[[Item], bool], count: int, what: str
) -> list[Item]:
    """`count` items, each of which was new when it was made.

    Raises MemAttnError after MAX_REPEATS attempts in a row without a new one.
    """
    items: list[Item] = []
    repeats = 0
    while len(items) < count:
        item = make()
        if is_new(item):
            items.append(item)
            repeats = 0
        else:
            repeats += 1
            if repeats > MAX_REPEATS:
                raise MemAttnError(
                    f"{what}: {count} requested, but after {len(items)} no new one was found in "
                    f"{MAX_REPEATS} attempts; request fewer, or longer documents"
                )
    return items


class Corpus:
    """Generates the parts of a corpus in order; no part repeats what another one contains."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.used_contexts: set[str] = set()  # sources of contrastive groups
        self.used_documents: set[str] = set()

    def contrast(self, phenomenon: str) -> list[Group]:
        """The contrastive groups of a phenomenon, as many for each distance."""
        rng = Random(f"{self.options.seed} contrast {phenomenon}")
        distances, context = self.options.distances, self.options.context
        groups = group_count(self.options.contrast_groups, len(distances))
        sets = groups // CANDIDATES // len(distances)
        found: list[list[Group]] = []
        for distance in distances:
            make = partial(balanced_set, rng, phenomenon, distance, context)
            found += distinct(make, self.new_set, sets, f"sets of {phenomenon}")
        rng.shuffle(found)
        return [group for groups in found for group in groups]

    def new_set(self, groups: list[Group]) -> bool:
        """Whether none of the sources was used before; if so, records them as used."""
        sources = [group["src"] for group in groups]
        if any(source in self.used_contexts for source in sources):
            return False
        self.used_contexts.update(sources)
        return True

    def split(self, name: str) -> list[list[Pair]]:
        """The documents of a split; train has more of what is difficult to learn."""
        options = self.options
        mix = EVEN
        if name == "train":
            mix = training(options.name_weight, options.noun_weight)
        rng, between = Random(f"{options.seed} {name}"), gaps(options.distances)
        return distinct(
            lambda: document(rng, options.min_sentences, options.max_sentences, mix, between),
            self.new_document,
            getattr(options, f"{name}_docs"),
            f"{name} documents",
        )

    def new_document(self, pairs: list[Pair]) -> bool:
        """Whether a document was not used before and contains no source of a contrastive group."""
        sentences = [pair.en for pair in pairs]
        text, size = "\n".join(sentences), self.options.context + 1
        windows = (
            f" {SEPARATOR} ".join(sentences[at : at + size])
            for at in range(len(sentences) - size + 1)
        )
        if text in self.used_documents or any(w in self.used_contexts for w in windows):
            return False
        self.used_documents.add(text)
        return True
