"""Balanced contrastive sets in the format of Voita et al. (2019).

A set is two contexts, one current source sentence and two translations of it, each correct in
exactly one context. A model that scores current sentences alone therefore chooses the correct
translation in exactly one group of each set. Each position among the candidates is correct once.
"""

from random import Random
from typing import TypedDict

from fairseq_memattn.data_prep.generated.discourse.grammar import Bindings, render
from fairseq_memattn.data_prep.generated.discourse.phenomena import PHENOMENA
from fairseq_memattn.data_prep.generated.discourse.stories import Episode, Story

SEPARATOR = "_eos"
CANDIDATES = 2


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


def join(sentences: list[str]) -> str:
    """Sentences as one line."""
    return f" {SEPARATOR} ".join(sentences)


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
                "src": join([pair.en for pair in before] + [current[correct].en]),
                "dst": [join([pair.ru for pair in before] + [last.ru]) for last in candidates],
                "true_ind": position,
                "ctx_dist": distance,
            }
        )
    return groups
