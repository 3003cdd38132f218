"""Questions about a world, with their answers. Holdings are those at the end of the passage."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations, permutations

from fairseq_memattn.data_prep.generated.numeric.words import fill
from fairseq_memattn.data_prep.generated.numeric.world import Entity, Event, World

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


def question(name: str, event: Event) -> str:
    """A question about the events like this one."""
    return fill(name, **{**event._asdict(), "verb": event.verb.base})


def done(world: World) -> Answered:
    sums: Counter[str] = Counter()
    for event in world.events:
        if event.verb.kind != "have":
            sums[question("done", event)] += event.amount
    yield from sums.items()


def done_somewhere(world: World) -> Answered:
    sums: Counter[str] = Counter()
    for event in world.events:
        if event.place:
            sums[question("done somewhere", event)] += event.amount
    yield from sums.items()


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
    """Every agent, once, in the order of the passage."""
    return list(dict.fromkeys(agent for agent, _ in world.holdings))


def entities(world: World) -> list[Entity]:
    """Every entity, once, in the order of the passage."""
    return list(dict.fromkeys(entity for _, entity in world.holdings))


def holders(world: World, entity: Entity) -> dict[str, int]:
    """Who has how many of an entity."""
    return {agent: count for (agent, other), count in world.holdings.items() if other == entity}


def mixed(world: World) -> Iterator[tuple[str, str, dict[str, int]]]:
    """The nouns that an agent has with several attributes, and how many with each."""
    for agent in agents(world):
        nouns: dict[str, dict[str, int]] = {}
        for entity, count in world.of(agent).items():
            nouns.setdefault(entity.noun, {})[entity.attribute] = count
        yield from ((agent, noun, counts) for noun, counts in nouns.items() if len(counts) > 1)
