"""Where people and objects are after some of the sentences of a story."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Event(NamedTuple):
    """What a sentence says.

    kind: move (to a place), take or drop (an object)
    what: the place or the object
    """

    kind: str
    person: str
    what: str


class Stay(NamedTuple):
    """A place, and the numbers of the sentences that prove that somebody or something is there."""

    place: str
    facts: frozenset[int]


class Simulation:
    """What a reader knows after the events read so far.

    A person is at the place of the last move. An object that is held is where its holder is. An
    object that is taken or dropped by a person whose place is not known stays where it was.

    people: where each person is; absent before the first move
    holders: who holds an object, and the number of the sentence that says so
    objects: where each object is; absent if it is not known
    visits: the places where each object has been, in their order, consecutive ones being different
    """

    def __init__(self, events: Mapping[int, Event] | None = None) -> None:
        """events: by the number of the sentence, in ascending order"""
        self.people: dict[str, Stay] = {}
        self.holders: dict[str, tuple[str, int]] = {}
        self.objects: dict[str, Stay] = {}
        self.visits: dict[str, list[Stay]] = {}
        for number, event in (events or {}).items():
            self.read(number, event)

    def read(self, number: int, event: Event) -> None:
        person, what = event.person, event.what
        if event.kind == "move":
            self.people[person] = Stay(what, frozenset([number]))
            for thing in self.held_by(person):
                self._bring(thing, person, self.holders[thing][1])
            return
        if event.kind == "take":
            self.holders[what] = (person, number)
        else:
            self.holders.pop(what, None)
        self._bring(what, person, number)

    def held_by(self, person: str) -> Iterable[str]:
        return [thing for thing, (holder, _) in self.holders.items() if holder == person]

    def before(self, thing: str, place: str) -> Stay | None:
        """Where an object was before a place, and the facts of both.

        None if it has not been in the place exactly once, or nowhere before.
        """
        visits = self.visits.get(thing, [])
        found = [number for number, stay in enumerate(visits) if stay.place == place]
        if len(found) != 1 or found[0] == 0:
            return None
        earlier, later = visits[found[0] - 1 : found[0] + 1]
        return Stay(earlier.place, earlier.facts | later.facts)

    def _bring(self, thing: str, person: str, number: int) -> None:
        """The object is where the person is, as the sentence with the number implies."""
        if person not in self.people:
            return
        place, facts = self.people[person]
        stay = self.objects[thing] = Stay(place, facts | {number})
        visits = self.visits.setdefault(thing, [])
        if not visits or visits[-1].place != place:
            visits.append(stay)
