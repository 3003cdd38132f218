"""Passages: what happens, who has how many of whom afterwards, and the sentences that tell it.

Templates are filled with words, most of which the passage has used before.
"""

from collections.abc import Callable, Container, Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple, TypeVar

from fairseq_memattn.data_prep.text.tables import grouped, read_table


class Verb(NamedTuple):
    """A verb of one kind: what its subject does to a number of people.

    kind: have, gain, lose, take (from another) or give (to another)
    """

    kind: str
    past: str
    base: str


VERB_KINDS = ("have", "gain", "lose", "take", "give")
ROWS = grouped(read_table(__package__, "words.tsv"), "kind")
AGENTS, NOUNS, ATTRIBUTES, PLACES = (
    [row["word"] for row in ROWS[kind]] for kind in ("agent", "noun", "attribute", "place")
)
VERBS = tuple(Verb(kind, row["word"], row["base"]) for kind in VERB_KINDS for row in ROWS[kind])
TEMPLATES = {row["name"]: row["template"] for row in read_table(__package__, "templates.tsv")}


def fill(name: str, **words: object) -> str:
    """A template of templates.tsv with words in its places."""
    return TEMPLATES[name].format(**words)


class Entity(NamedTuple):
    """People that are counted, such as Italian troops; the attribute may be empty."""

    attribute: str
    noun: str

    def __str__(self) -> str:
        return f"{self.attribute} {self.noun}".strip()


class Event(NamedTuple):
    """One clause of a passage.

    partner: the agent from whom a verb of kind take takes, or to whom one of kind give gives
    """

    agent: str
    verb: Verb
    amount: int
    entity: Entity
    place: str = ""
    partner: str = ""


class World:
    """The events so far, and the holdings: how many of an entity an agent has.

    A pair of agent and entity is in `holdings` from the first event that mentions it.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.holdings: dict[tuple[str, Entity], int] = {}

    def add(self, event: Event) -> None:
        self.events.append(event)
        sign = -1 if event.verb.kind in ("lose", "give") else 1
        self._change(event.agent, event.entity, sign * event.amount)
        if event.partner:
            self._change(event.partner, event.entity, -sign * event.amount)

    def _change(self, agent: str, entity: Entity, amount: int) -> None:
        self.holdings[agent, entity] = self.holdings.get((agent, entity), 0) + amount

    def of(self, agent: str) -> dict[Entity, int]:
        return {entity: count for (who, entity), count in self.holdings.items() if who == agent}


Word = TypeVar("Word", str, Verb)
LEAST = 2  # people in a group; one would need the singular
ATTRIBUTED = 0.7  # share of nouns with attributes; within a passage a noun has one always or never


class Passage:
    """A passage while it is written: its sentences, its world, and the words it has used.

    reuse: the probability that a template takes a word that was used before rather than a new one
    largest: the greatest number of people that somebody has or gains at once; somebody may lose
        or give more
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
        templates = ANYTIME + (SPENDING if self.spendable() else ())
        events = self.rng.choice(templates)(self)
        for event in events:
            self.world.add(event)
        self.sentences.append(sentence(events))

    def word(self, kind: str, table: Sequence[Word], avoid: Container[Word] = ()) -> Word:
        """A word of a table, either used before for this kind or new."""
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
        return self.word("agent", AGENTS, others)

    def place(self) -> str:
        return self.word("place", PLACES)

    def verb(self, kind: str) -> Verb:
        return self.word(kind, [verb for verb in VERBS if verb.kind == kind])

    def entity(self, avoid: Container[Entity]) -> Entity:
        """An entity that is not in `avoid`."""
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
        """An agent has or gains some number of people."""
        return Event(agent, verb, self.rng.randint(LEAST, self.largest), self.entity(avoid), place)

    def spendable(self) -> list[tuple[str, Entity]]:
        """Groups that can become smaller: at least LEAST people go, and at least one stays."""
        return [pair for pair, count in self.world.holdings.items() if count > LEAST]

    def spent(self) -> tuple[str, Entity, int]:
        """An agent, a group of people that the agent has, and how many of them go."""
        agent, entity = self.rng.choice(self.spendable())
        return agent, entity, self.rng.randint(LEAST, self.world.holdings[agent, entity] - 1)


def sentence(events: Sequence[Event]) -> str:
    parts = [fill("first clause", agent=events[0].agent, clause=clause(events[0]))]
    for before, event in pairwise(events):
        if event.agent != before.agent:
            part = fill("clause of another agent", agent=event.agent, clause=clause(event))
        elif event.verb == before.verb:
            part = fill("more of the same", amount=event.amount, entity=event.entity)
        else:
            part = fill("contrast", clause=clause(event))
        parts.append(part)
    return " ".join(parts) + "."


def clause(event: Event) -> str:
    name = f"{event.verb.kind} somewhere" if event.place else event.verb.kind
    return fill(name, **{**event._asdict(), "verb": event.verb.past})


# The kinds of sentences. What somebody has is stated of new people alone, so that no sentence
# contradicts an earlier one.


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
