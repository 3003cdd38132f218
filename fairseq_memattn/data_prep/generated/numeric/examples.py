"""Examples: a passage, a question, and an answer, a number that is not in the passage.

Holdings in questions are those at the end of the passage.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations
from random import Random
from typing import NamedTuple

from fairseq_memattn.data_prep.generated.numeric.passage_writer import (
    Entity,
    Event,
    Passage,
    World,
    fill,
)


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


Answered = Iterator[tuple[str, int]]


def holding(world: World) -> Answered:
    for (agent, entity), count in world.holdings.items():
        yield fill("holding", entity=entity, agent=agent), count


def total(world: World) -> Answered:
    for agent, noun, counts in mixed(world):
        yield fill("total", noun=noun, agent=agent), sum(counts.values())


def others(world: World) -> Answered:
    for agent, noun, counts in mixed(world):
        for attribute, count in counts.items():
            rest = sum(counts.values()) - count
            yield fill("others", noun=noun, attribute=attribute, agent=agent), rest


def between_entities(world: World) -> Answered:
    for agent in agents(world):
        for (more, a), (fewer, b) in permutations(world.of(agent).items(), 2):
            if a > b:
                for name in ("more of one entity", "fewer of one entity"):
                    yield fill(name, agent=agent, more=more, fewer=fewer), a - b


def between_agents(world: World) -> Answered:
    for entity in entities(world):
        for (more, a), (fewer, b) in permutations(holders(world, entity).items(), 2):
            if a > b:
                for name in ("one agent has more", "one agent has fewer"):
                    yield fill(name, entity=entity, more=more, fewer=fewer), a - b


def combined(world: World) -> Answered:
    for entity in entities(world):
        for (one, a), (other, b) in combinations(holders(world, entity).items(), 2):
            yield fill("combined", entity=entity, one=one, other=other), a + b


def extreme_holder(world: World) -> Answered:
    for entity in entities(world):
        counts = holders(world, entity).values()
        if len(counts) > 1:
            yield fill("largest number", entity=entity), max(counts)
            yield fill("smallest number", entity=entity), min(counts)


def extreme_group(world: World) -> Answered:
    for agent in agents(world):
        counts = world.of(agent).values()
        if len(counts) > 1:
            yield fill("largest group", agent=agent), max(counts)
            yield fill("smallest group", agent=agent), min(counts)


def done(world: World) -> Answered:
    yield from sums("done", [event for event in world.events if event.verb.kind != "have"])


def done_somewhere(world: World) -> Answered:
    yield from sums("done somewhere", [event for event in world.events if event.place])


def sums(name: str, events: Sequence[Event]) -> Answered:
    """The questions about events like these, and how many people they concern together."""
    found: Counter[str] = Counter()
    for event in events:
        found[fill(name, **{**event._asdict(), "verb": event.verb.base})] += event.amount
    yield from found.items()


KINDS: tuple[Callable[[World], Answered], ...] = (
    holding,
    total,
    others,
    between_entities,
    between_agents,
    combined,
    extreme_holder,
    extreme_group,
    done,
    done_somewhere,
)


def agents(world: World) -> list[str]:
    return list(dict.fromkeys(agent for agent, _ in world.holdings))


def entities(world: World) -> list[Entity]:
    return list(dict.fromkeys(entity for _, entity in world.holdings))


def holders(world: World, entity: Entity) -> dict[str, int]:
    return {agent: count for (agent, other), count in world.holdings.items() if other == entity}


def mixed(world: World) -> Iterator[tuple[str, str, dict[str, int]]]:
    """The nouns that an agent has with several attributes, and how many with each."""
    for agent in agents(world):
        nouns: dict[str, dict[str, int]] = {}
        for entity, count in world.of(agent).items():
            nouns.setdefault(entity.noun, {})[entity.attribute] = count
        yield from ((agent, noun, counts) for noun, counts in nouns.items() if len(counts) > 1)
