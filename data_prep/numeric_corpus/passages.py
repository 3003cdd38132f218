"""Passages: sentence templates filled with words, most of them words of the same passage."""

from collections.abc import Callable, Container, Sequence
from itertools import pairwise
from random import Random
from typing import TypeVar

from data_prep.numeric_corpus.words import AGENTS, ATTRIBUTES, NOUNS, PLACES, VERBS, Verb
from data_prep.numeric_corpus.world import Entity, Event, World

Word = TypeVar("Word", str, Verb)
LEAST = 2  # of what is counted; one of them would need the singular
ATTRIBUTED = 0.7  # how many nouns have attributes; a passage has a noun always with or without


class Passage:
    """A passage as it grows: its sentences, its world, and the words that it has used.

    reuse: the probability that a place in a template takes a used word rather than a new one
    largest: the greatest number that somebody has or gains at once; what goes may be more
    """

    def __init__(self, rng: Random, reuse: float, largest: int) -> None:
        self.rng = rng
        self.reuse = reuse
        self.largest = largest
        self.world = World()
        self.sentences: list[str] = []
        self._used: dict[str, list] = {}
        self._plain: dict[str, bool] = {}

    def tell(self) -> None:
        """Add a sentence."""
        templates = ANYTIME + (SPENDING if self.spendable() else ())
        events = self.rng.choice(templates)(self)
        for event in events:
            self.world.add(event)
        self.sentences.append(sentence(events))

    def word(self, kind: str, table: Sequence[Word], avoid: Container[Word] = ()) -> Word:
        """A word of a table: one that the passage has used for this kind, or a new one."""
        used = self._used.setdefault(kind, [])
        again = [word for word in used if word not in avoid]
        if again and self.rng.random() < self.reuse:
            return self.rng.choice(again)
        new = [word for word in table if word not in avoid and word not in used]
        if not new:
            return self.rng.choice(again)
        used.append(self.rng.choice(new))
        return used[-1]

    def agent(self, *others: str) -> str:
        """Somebody who is none of the others."""
        return self.word("agent", AGENTS, others)

    def place(self) -> str:
        """A place."""
        return self.word("place", PLACES)

    def verb(self, kind: str) -> Verb:
        """A verb of a kind."""
        return self.word(kind, [verb for verb in VERBS if verb.kind == kind])

    def entity(self, avoid: Container[Entity]) -> Entity:
        """People who are none of those to avoid."""
        taken = {noun: [a for a in ATTRIBUTES if Entity(a, noun) in avoid] for noun in NOUNS}
        noun = self.word(
            "noun",
            NOUNS,
            [n for n in NOUNS if Entity("", n) in avoid or len(taken[n]) == len(ATTRIBUTES)],
        )
        if self._plain.setdefault(noun, self.rng.random() >= ATTRIBUTED):
            return Entity("", noun)
        return Entity(self.word("attribute", ATTRIBUTES, taken[noun]), noun)

    def event(
        self, agent: str, verb: Verb, avoid: Container[Entity] = (), place: str = ""
    ) -> Event:
        """Somebody has or gains some number of people."""
        return Event(agent, verb, self.rng.randint(LEAST, self.largest), self.entity(avoid), place)

    def spendable(self) -> list[tuple[str, Entity]]:
        """What can become fewer: some are told of, and some stay, so that nobody has none."""
        return [pair for pair, count in self.world.holdings.items() if count > LEAST]

    def spent(self) -> tuple[str, Entity, int]:
        """Who has whom, and how many of them go."""
        agent, entity = self.rng.choice(self.spendable())
        return agent, entity, self.rng.randint(LEAST, self.world.holdings[agent, entity] - 1)


def sentence(events: Sequence[Event]) -> str:
    """The events as one sentence."""
    text = f"The {events[0].agent} {clause(events[0])}"
    for before, event in pairwise(events):
        if event.agent != before.agent:
            text += f" and the {event.agent} {clause(event)}"
        elif event.verb == before.verb:
            text += f" and {event.amount} {event.entity}"
        else:
            text += f" but {clause(event)}"
    return text + "."


def clause(event: Event) -> str:
    """An event without its subject."""
    of = "of the " if event.verb.kind == "lose" else ""
    text = f"{event.verb.past} {event.amount} {of}{event.entity}"
    if event.place:
        text += f" in {event.place}"
    if event.partner:
        text += f" {'from' if event.verb.kind == 'take' else 'to'} the {event.partner}"
    return text


# The templates. Observations tell of what was not told of before, so they contradict nothing.


def has(passage: Passage) -> list[Event]:
    agent = passage.agent()
    return [passage.event(agent, passage.verb("have"), passage.world.of(agent))]


def has_two(passage: Passage) -> list[Event]:
    agent, verb = passage.agent(), passage.verb("have")
    known = passage.world.of(agent)
    first = passage.event(agent, verb, known)
    return [first, passage.event(agent, verb, {*known, first.entity})]


def gains(passage: Passage) -> list[Event]:
    return [passage.event(passage.agent(), passage.verb("gain"))]


def gains_two(passage: Passage) -> list[Event]:
    agent, verb = passage.agent(), passage.verb("gain")
    first = passage.event(agent, verb)
    return [first, passage.event(agent, verb, {first.entity})]


def gains_somewhere(passage: Passage) -> list[Event]:
    return [passage.event(passage.agent(), passage.verb("gain"), place=passage.place())]


def both_gain(passage: Passage) -> list[Event]:
    agent = passage.agent()
    first = passage.event(agent, passage.verb("gain"))
    return [first, passage.event(passage.agent(agent), passage.verb("gain"))]


def loses(passage: Passage) -> list[Event]:
    agent, entity, amount = passage.spent()
    return [Event(agent, passage.verb("lose"), amount, entity)]


def gains_but_loses(passage: Passage) -> list[Event]:
    agent, entity, amount = passage.spent()
    gain = passage.event(agent, passage.verb("gain"), {entity})
    return [gain, Event(agent, passage.verb("lose"), amount, entity)]


def takes(passage: Passage) -> list[Event]:
    partner, entity, amount = passage.spent()
    agent = passage.agent(partner)
    return [Event(agent, passage.verb("take"), amount, entity, partner=partner)]


def gives(passage: Passage) -> list[Event]:
    agent, entity, amount = passage.spent()
    partner = passage.agent(agent)
    return [Event(agent, passage.verb("give"), amount, entity, partner=partner)]


Template = Callable[[Passage], list[Event]]
ANYTIME: tuple[Template, ...] = (has, has_two, gains, gains_two, gains_somewhere, both_gain)
SPENDING: tuple[Template, ...] = (loses, gains_but_loses, takes, gives)
