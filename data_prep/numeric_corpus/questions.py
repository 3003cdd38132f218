"""Questions about a world, with their answers. What somebody has is what is left in the end."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations, permutations

from data_prep.numeric_corpus.world import Entity, World

Answered = Iterator[tuple[str, int]]


def holding(world: World) -> Answered:
    for (agent, entity), count in world.holdings.items():
        yield f"How many {entity} did the {agent} have?", count


def total(world: World) -> Answered:
    for agent, noun, counts in mixed(world):
        yield f"How many {noun} did the {agent} have in total?", sum(counts.values())


def others(world: World) -> Answered:
    for agent, noun, counts in mixed(world):
        for attribute, count in counts.items():
            rest = sum(counts.values()) - count
            yield f"How many {noun} that were not {attribute} did the {agent} have?", rest


def between_entities(world: World) -> Answered:
    for agent in agents(world):
        for (more, a), (fewer, b) in permutations(world.of(agent).items(), 2):
            if a > b:
                yield f"How many more {more} did the {agent} have than {fewer}?", a - b
                yield f"How many fewer {fewer} did the {agent} have than {more}?", a - b


def between_agents(world: World) -> Answered:
    for entity in entities(world):
        for (more, a), (fewer, b) in permutations(holders(world, entity).items(), 2):
            if a > b:
                yield f"How many more {entity} did the {more} have than the {fewer}?", a - b
                yield f"How many fewer {entity} did the {fewer} have than the {more}?", a - b


def combined(world: World) -> Answered:
    for entity in entities(world):
        for (one, a), (other, b) in combinations(holders(world, entity).items(), 2):
            yield f"How many {entity} did the {one} and the {other} have combined?", a + b


def extreme_holder(world: World) -> Answered:
    for entity in entities(world):
        counts = holders(world, entity).values()
        if len(counts) > 1:
            yield f"What was the largest number of {entity} that anyone had?", max(counts)
            yield f"What was the smallest number of {entity} that anyone had?", min(counts)


def extreme_group(world: World) -> Answered:
    for agent in agents(world):
        counts = world.of(agent).values()
        if len(counts) > 1:
            yield f"What was the size of the largest group that the {agent} had?", max(counts)
            yield f"What was the size of the smallest group that the {agent} had?", min(counts)


def done(world: World) -> Answered:
    sums: Counter[str] = Counter()
    for event in world.events:
        if event.verb.kind != "have":
            sums[f"{event.entity} did the {event.agent} {event.verb.base}"] += event.amount
    for what, count in sums.items():
        yield f"How many {what}?", count


def done_somewhere(world: World) -> Answered:
    sums: Counter[str] = Counter()
    for event in world.events:
        if event.place:
            what = f"{event.entity} did the {event.agent} {event.verb.base} in {event.place}"
            sums[what] += event.amount
    for what, count in sums.items():
        yield f"How many {what}?", count


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
    """Everybody, once, in the order of the passage."""
    return list(dict.fromkeys(agent for agent, _ in world.holdings))


def entities(world: World) -> list[Entity]:
    """All that is counted, once, in the order of the passage."""
    return list(dict.fromkeys(entity for _, entity in world.holdings))


def holders(world: World, entity: Entity) -> dict[str, int]:
    """Who has how many of an entity."""
    return {agent: count for (agent, other), count in world.holdings.items() if other == entity}


def mixed(world: World) -> Iterator[tuple[str, str, dict[str, int]]]:
    """For each agent the nouns that it has with several attributes, and how many with each."""
    for agent in agents(world):
        nouns: dict[str, dict[str, int]] = {}
        for entity, count in world.of(agent).items():
            nouns.setdefault(entity.noun, {})[entity.attribute] = count
        yield from ((agent, noun, counts) for noun, counts in nouns.items() if len(counts) > 1)
