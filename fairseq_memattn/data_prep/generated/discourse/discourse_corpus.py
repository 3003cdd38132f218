"""The documents and the contrastive sets of a corpus, which share no document.

A document is an opening, then episodes, with neutral sentences in between. An episode is a cue,
neutral sentences, and a sentence whose translation needs the cue. The contrastive sets consist of
the same episodes, so the corpus teaches what they test.

A contrastive set, in the format of Voita et al. (2019), is two contexts, one current source
sentence and two translations of it, each correct in exactly one context. A model that scores
current sentences alone therefore chooses the correct translation in exactly one group of each set.
Each position among the candidates is correct once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypedDict, TypeVar

from fairseq_memattn.data_prep.generated.discourse.grammar import Bindings, Pair, render
from fairseq_memattn.data_prep.generated.discourse.phenomena import (
    PHENOMENA,
    deixis,
    name_cohesion,
    noun_cohesion,
    noun_ellipsis,
    pronoun,
    verb_ellipsis,
)
from fairseq_memattn.data_prep.generated.discourse.stories import Episode, Story
from fairseq_memattn.data_prep.text.windows import join_window
from fairseq_memattn.errors import MemAttnError

Item = TypeVar("Item")
MAX_REPEATS = 1000  # so many repetitions in a row mean that nothing new can be found
SPLITS = ("test", "valid", "train")  # in this order the test set does not depend on train's size
SEPARATOR = "_eos"
CANDIDATES = 2
DISTANCES = (1, 2, 3)  # sentences from a cue to its use, unless others are asked for
GAPS = (0, 0, 0, 1, 1, 2)  # neutral sentences between these; short gaps are more frequent
NEUTRAL_AFTER = 0.3  # share of episodes with a neutral sentence after them
TOLD = (pronoun, verb_ellipsis, noun_ellipsis, name_cohesion, noun_cohesion)
SPOKEN_EPISODES = (deixis, verb_ellipsis, pronoun)


@dataclass(frozen=True)
class Mix:
    """The share of conversations, and the weights of the episodes in stories and conversations.

    spoken_documents: the share of conversations
    told: the weights of `TOLD`, the episodes of stories
    spoken: the weights of `SPOKEN_EPISODES`, the episodes of conversations
    """

    spoken_documents: float
    told: Sequence[int]
    spoken: Sequence[int]


EVEN = Mix(0.5, (1, 1, 1, 1, 1), (1, 1, 1))


def training(name_weight: int, noun_weight: int) -> Mix:
    """The mix of the training set, with more of the episodes that models learn slowly.

    name_weight, noun_weight: the weights of the cohesion of names and of nouns in stories
    """
    return Mix(0.3, (3, 1, 2, name_weight, noun_weight), (3, 1, 1))


def gaps(distances: Sequence[int]) -> Sequence[int]:
    """The numbers of neutral sentences between cue and use, of which one is drawn.

    distances: the sentences from a cue to its use. Other distances than the default are as frequent
        as they are short: d occurs in proportion to 1 / d
    """
    if tuple(distances) == DISTANCES:
        return GAPS
    longest = max(distances)
    return [distance - 1 for distance in distances for _ in range(round(longest / distance))]


def document(
    rng: Random, shortest: int, longest: int, mix: Mix = EVEN, gaps: Sequence[int] = GAPS
) -> list[Pair]:
    """One document of `shortest` to `longest` sentences. gaps: see `gaps`"""
    story = Story(rng, spoken=rng.random() < mix.spoken_documents)
    episodes, weights = (SPOKEN_EPISODES, mix.spoken) if story.spoken else (TOLD, mix.told)
    length = rng.randint(shortest, longest)
    pairs = [story.opening()]
    while len(pairs) < length:
        (make,) = rng.choices(episodes, weights)
        episode = make(story)
        pairs.append(render(episode.cue, episode.words))
        pairs.extend(story.neutral(between=True) for _ in range(rng.choice(gaps)))
        pairs.append(render(episode.current, episode.words))
        if rng.random() < NEUTRAL_AFTER:
            pairs.append(story.neutral(between=False))
    return pairs[:length]


class Group(TypedDict):
    """One context with its candidates; the keys of Voita et al."""

    src: str
    dst: list[str]
    true_ind: int
    ctx_dist: int


def group_count(wanted: int, distances: int = 3) -> int:
    """`wanted` rounded up to whole sets for each of so many distances."""
    unit = CANDIDATES * distances
    return -(-wanted // unit) * unit


def choose_alternatives(rng: Random, episode: Episode, size: int) -> list[Bindings]:
    """`size` fillings of an episode that share the current source and differ in its translation.

    Returns fewer where the current sentence has fewer translations.
    """
    source = render(episode.current, episode.words).en
    chosen: dict[str, Bindings] = {}
    for swap in rng.sample(episode.swaps, len(episode.swaps)):
        words = {**episode.words, **swap}
        pair = render(episode.current, words)
        if pair.en == source and len(chosen) < size:
            chosen.setdefault(pair.ru, words)
    return list(chosen.values())


def balanced_set(rng: Random, phenomenon: str, distance: int, context: int) -> list[Group]:
    """A group a context, with the cue `distance` sentences before the current one.

    context: the number of sentences before the current one
    """
    while True:
        story = Story(rng, PHENOMENA[phenomenon].spoken)
        episode = rng.choice(PHENOMENA[phenomenon].episodes)(story)
        alternatives = choose_alternatives(rng, episode, CANDIDATES)
        if len(alternatives) == CANDIDATES:
            break
    opening = [story.neutral(between=False) for _ in range(context - distance)]
    gap = [story.neutral(between=True) for _ in range(distance - 1)]
    current = [render(episode.current, words) for words in alternatives]
    positions = rng.sample(range(CANDIDATES), CANDIDATES)
    groups: list[Group] = []
    for correct, (words, position) in enumerate(zip(alternatives, positions, strict=True)):
        before = [*opening, render(episode.cue, words), *gap]
        others = rng.sample(current[:correct] + current[correct + 1 :], CANDIDATES - 1)
        candidates = others[:position] + [current[correct]] + others[position:]
        groups.append(
            {
                "src": join_window([*(p.en for p in before), current[correct].en], SEPARATOR),
                "dst": [
                    join_window([*(p.ru for p in before), last.ru], SEPARATOR)
                    for last in candidates
                ],
                "true_ind": position,
                "ctx_dist": distance,
            }
        )
    return groups


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
            join_window(sentences[at : at + size], SEPARATOR)
            for at in range(len(sentences) - size + 1)
        )
        if text in self.used_documents or any(w in self.used_contexts for w in windows):
            return False
        self.used_documents.add(text)
        return True
