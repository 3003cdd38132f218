"""Examples: a passage, a question, and an answer that is a number the passage does not hold."""

from collections import Counter
from random import Random
from typing import NamedTuple

from data_prep.corpora.numeric.passage_writer import Passage
from data_prep.corpora.numeric.questions import KINDS
from data_prep.corpora.numeric.world import World


class Example(NamedTuple):
    """All three are text."""

    passage: str
    question: str
    answer: str


def draw_example(
    rng: Random, reuse: float, largest: int, sentences: int, counts: Counter[str]
) -> Example:
    """An example; the question's kind is drawn among those that the passage allows.

    sentences: of the passage
    counts: told of the passages that allow no question
    """
    while True:
        passage = Passage(rng, reuse, largest)
        for _ in range(sentences):
            passage.tell()
        kinds = questions(passage.world)
        if kinds:
            question, answer = rng.choice(rng.choice(kinds))
            return Example(" ".join(passage.sentences), question, str(answer))
        counts["passages without such a question"] += 1


def questions(world: World) -> list[list[tuple[str, int]]]:
    """By kind, the questions about a passage whose answers it does not hold."""
    numbers = {event.amount for event in world.events}
    found = [[pair for pair in kind(world) if pair[1] not in numbers] for kind in KINDS]
    return [pairs for pairs in found if pairs]
