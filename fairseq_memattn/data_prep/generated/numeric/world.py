"""The words and templates of the passages, what happens in one, and who has how many of whom."""

from typing import NamedTuple

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
