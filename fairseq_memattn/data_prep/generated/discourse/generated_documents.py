"""Documents: an opening, then episodes, with neutral sentences in between.

An episode is a cue, neutral sentences, and a sentence whose translation needs the cue.
The contrastive sets consist of the same episodes, so the corpus teaches what they test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from fairseq_memattn.data_prep.generated.discourse.grammar import Pair, render
from fairseq_memattn.data_prep.generated.discourse.phenomena.cohesion import (
    name_cohesion,
    noun_cohesion,
)
from fairseq_memattn.data_prep.generated.discourse.phenomena.deixis import deixis
from fairseq_memattn.data_prep.generated.discourse.phenomena.ellipsis import (
    noun_ellipsis,
    verb_ellipsis,
)
from fairseq_memattn.data_prep.generated.discourse.phenomena.pronoun import pronoun
from fairseq_memattn.data_prep.generated.discourse.stories import Story

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
