"""The whole corpus: splits and contrastive sets that share no document."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from data_prep.discourse_corpus.contrastive import (
    CANDIDATES,
    SENTENCES,
    SEPARATOR,
    Group,
    balanced_set,
    group_count,
)
from data_prep.discourse_corpus.documents import EVEN, MAX_DISTANCE, document, training
from data_prep.discourse_corpus.grammar import Pair
from data_prep.files import DataError

Item = TypeVar("Item")
MAX_REPEATS = 1000  # this many repetitions in a row mean that there is nothing new to be found
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


def distinct(
    make: Callable[[], Item], is_new: Callable[[Item], bool], count: int, what: str
) -> list[Item]:
    """`count` items for which `is_new` held when they were made."""
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
                raise DataError(
                    f"{what}: {count} asked for, but after {len(items)} no new one was found in "
                    f"{MAX_REPEATS} attempts; ask for fewer, or for longer documents"
                )
    return items


class Corpus:
    """Generates the parts of a corpus in order, and remembers what it has used."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.used_contexts: set[str] = set()  # sources of contrastive groups
        self.used_documents: set[str] = set()

    def contrast(self, phenomenon: str) -> list[Group]:
        """The contrastive groups of a phenomenon, as many for each distance."""
        rng = Random(f"{self.options.seed} contrast {phenomenon}")
        sets = group_count(self.options.contrast_groups) // CANDIDATES // MAX_DISTANCE
        found: list[list[Group]] = []
        for distance in range(1, MAX_DISTANCE + 1):
            make = partial(balanced_set, rng, phenomenon, distance)
            found += distinct(make, self.new_set, sets, f"sets of {phenomenon}")
        rng.shuffle(found)
        return [group for groups in found for group in groups]

    def new_set(self, groups: list[Group]) -> bool:
        """Whether none of the sources was used before; then they are from now on."""
        sources = [group["src"] for group in groups]
        if any(source in self.used_contexts for source in sources):
            return False
        self.used_contexts.update(sources)
        return True

    def split(self, name: str) -> list[list[Pair]]:
        """The documents of a split: those to train on have more of what is hard to learn."""
        options = self.options
        mix = EVEN
        if name == "train":
            mix = training(options.name_weight, options.noun_weight)
        rng = Random(f"{options.seed} {name}")
        return distinct(
            lambda: document(rng, options.min_sentences, options.max_sentences, mix),
            self.new_document,
            getattr(options, f"{name}_docs"),
            f"{name} documents",
        )

    def new_document(self, pairs: list[Pair]) -> bool:
        """Whether a document is neither a used one nor holds a contrastive group's source."""
        sentences = [pair.en for pair in pairs]
        text = "\n".join(sentences)
        windows = (
            f" {SEPARATOR} ".join(sentences[at : at + SENTENCES])
            for at in range(len(sentences) - SENTENCES + 1)
        )
        if text in self.used_documents or any(w in self.used_contexts for w in windows):
            return False
        self.used_documents.add(text)
        return True
