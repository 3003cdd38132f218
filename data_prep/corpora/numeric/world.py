"""What happens in a passage, and who has how many of what after it."""

from typing import NamedTuple

from data_prep.corpora.numeric.words import Verb


class Entity(NamedTuple):
    """Who is counted, such as Italian troops; the attribute may be empty."""

    attribute: str
    noun: str

    def __str__(self) -> str:
        return f"{self.attribute} {self.noun}".strip()


class Event(NamedTuple):
    """One clause of a passage.

    partner: whom a verb of taking takes from, or one of giving gives to
    """

    agent: str
    verb: Verb
    amount: int
    entity: Entity
    place: str = ""
    partner: str = ""


class World:
    """The events so far, and the holdings: the number that an agent has of an entity.

    A pair of agent and entity is in `holdings` from the first event that tells of it on.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.holdings: dict[tuple[str, Entity], int] = {}

    def add(self, event: Event) -> None:
        """Let something happen."""
        self.events.append(event)
        sign = -1 if event.verb.kind in ("lose", "give") else 1
        self._change(event.agent, event.entity, sign * event.amount)
        if event.partner:
            self._change(event.partner, event.entity, -sign * event.amount)

    def _change(self, agent: str, entity: Entity, amount: int) -> None:
        self.holdings[agent, entity] = self.holdings.get((agent, entity), 0) + amount

    def of(self, agent: str) -> dict[Entity, int]:
        """What an agent has."""
        return {entity: count for (who, entity), count in self.holdings.items() if who == agent}
