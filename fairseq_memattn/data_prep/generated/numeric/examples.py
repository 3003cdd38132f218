"""Examples: a passage, a question, and an answer, a number that is not in the passage."""

from collections import Counter
from random import Random
from typing import NamedTuple

from fairseq_memattn.data_prep.generated.numeric.passage_writer import Passage
from fairseq_memattn.data_prep.generated.numeric.questions import KINDS
from fairseq_memattn.data_prep.generated.numeric.world import World


class Example(NamedTuple):
    """The texts of an example."""

    passage: str
    question: str
    answer: str


def draw_example(
    rng: Random, reuse: float, largest: int, sentences: int, counts: Counter[str]
) -> Example:
    """An example; the kind of its question is drawn from those that the passage allows.

    reuse, largest: see `Passage`
    sentences: number of sentences of the passage
    counts: counts the passages that allow no question
    """
    while True:
        passage = Passage(rng, reuse, largest)
        for _ in range(sentences):
            passage.tell()
        kinds = questions(passage.world)
        if kinds:
            question, answer = rng.choice(rng.choice(kinds))
            return Example(" ".join(passage.sentences), question, str(answer))
        counts["passages without a question, replaced"] += 1


def questions(world: World) -> list[list[tuple[str, int]]]:
    """By kind, the questions about a passage whose answers are not in it."""
    numbers = {event.amount for event in world.events}
    found = [[pair for pair in kind(world) if pair[1] not in numbers] for kind in KINDS]
    return [pairs for pairs in found if pairs]
