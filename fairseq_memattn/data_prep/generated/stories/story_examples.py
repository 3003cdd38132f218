"""Examples: a story, a question about it, its answer and the sentences that prove it.

A simulation knows where people and objects are after some of the sentences of a story.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from fairseq_memattn.data_prep.text.tables import grouped, read_table

MOST_FACTS = 3
PEOPLE_OF_A_STORY = 4
OBJECTS_OF_A_STORY = 3
MOVES = 0.5  # share of moves where a person could take or drop something as well
ROWS = grouped(read_table(__package__, "words.tsv"), "kind")
PEOPLE, PLACES, OBJECTS = (
    tuple(row["word"] for row in ROWS[kind]) for kind in ("person", "place", "object")
)
# By kind of event (move, take or drop) or, of questions, by the number of facts.
TEMPLATES = {
    kind: tuple(row["template"] for row in rows)
    for kind, rows in grouped(read_table(__package__, "templates.tsv"), "kind").items()
}


def all_texts() -> list[str]:
    """Texts that together have every word of every story and question."""
    templates = (text for texts in TEMPLATES.values() for text in texts)
    filled = [text.format(person="", what="", place="") for text in templates]
    return [*filled, *PEOPLE, *PLACES, *OBJECTS]


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


class Question(NamedTuple):
    """Where a person (1 fact) or an object (2 facts) is, or was before a place (3 facts)."""

    facts: int
    what: str
    place: str = ""

    def __str__(self) -> str:
        [template] = TEMPLATES[str(self.facts)]
        return template.format(what=self.what, place=self.place)


def questions(known: Simulation, facts: int) -> list[Question]:
    """The questions of a number of facts that can be asked at the end of a story."""
    if facts == 1:
        return [Question(1, person) for person in known.people]
    if facts == 2:
        return [Question(2, thing) for thing in known.objects]
    return [
        Question(3, thing, place)
        for thing, visits in known.visits.items()
        for place in dict.fromkeys(stay.place for stay in visits)
    ]


def answer(known: Simulation, question: Question) -> Stay | None:
    """The answer and the sentences from which it follows; None if it is not known."""
    if question.facts == 1:
        return known.people.get(question.what)
    if question.facts == 2:
        return known.objects.get(question.what)
    return known.before(question.what, question.place)


def proof(events: Sequence[Event], question: Question) -> Stay | None:
    """The answer with its supporting facts, which are necessary and sufficient.

    The supporting facts alone give the answer, and the story without any one of them does not.
    None if the question has no answer, or none with such facts in the right number.
    """
    everything = range(len(events))
    found = answer(Simulation(dict(enumerate(events))), question)
    if found is None or len(found.facts) != question.facts:
        return None

    def gives_it(numbers: Collection[int]) -> bool:
        part = Simulation({number: events[number] for number in sorted(numbers)})
        stay = answer(part, question)
        return stay is not None and stay.place == found.place

    without = ([number for number in everything if number != fact] for fact in found.facts)
    return found if gives_it(found.facts) and not any(map(gives_it, without)) else None


class Example(NamedTuple):
    """The texts of an example; facts: the numbers of the supporting sentences, from 0."""

    sentences: tuple[str, ...]
    question: str
    answer: str
    facts: tuple[int, ...]

    @property
    def passage(self) -> str:
        return " ".join(self.sentences)

    @property
    def answer_start(self) -> int:
        """The character of the story at which the answer begins, in a supporting sentence."""
        [number] = [n for n in self.facts if self.answer in self.sentences[n]]
        before = "".join(f"{sentence} " for sentence in self.sentences[:number])
        return len(before) + self.sentences[number].index(self.answer)


def draw_example(
    rng: Random, sentences: range, kinds: Sequence[int], apart: int, counts: Counter[str]
) -> Example:
    """An example; the number of facts of its question is drawn before its story.

    sentences: the numbers of sentences that the story may have; it has no fewer than facts
    kinds: the numbers of facts that a question may have
    apart: if it has several, the least number of sentences from the first of them to the last; at
        most half the sentences of the story
    counts: counts the stories that allow no such question
    """
    facts = rng.choice(kinds)
    # A single number is not drawn, so that stories of one length do not depend on this choice.
    number = max(facts, rng.choice(sentences)) if len(sentences) > 1 else sentences[0]
    apart = min(apart, number // 2)
    while True:
        events = draw_events(rng, number)
        asked = questions(Simulation(dict(enumerate(events))), facts)
        for question in rng.sample(asked, len(asked)):
            found = proof(events, question)
            if found and (facts == 1 or max(found.facts) - min(found.facts) >= apart):
                told = tuple(tell(rng, event) for event in events)
                return Example(told, str(question), found.place, tuple(sorted(found.facts)))
        counts["stories without a question, replaced"] += 1


def draw_events(rng: Random, number: int) -> list[Event]:
    people = rng.sample(PEOPLE, PEOPLE_OF_A_STORY)
    things = rng.sample(OBJECTS, OBJECTS_OF_A_STORY)
    known = Simulation()
    events: list[Event] = []
    while len(events) < number:
        events.append(draw_event(rng, known, rng.choice(people), things))
        known.read(len(events) - 1, events[-1])
    return events


def draw_event(rng: Random, known: Simulation, person: str, things: Sequence[str]) -> Event:
    """What a person does next: nobody moves to where they are, or takes what is elsewhere."""
    stay = known.people.get(person)
    if stay and rng.random() >= MOVES:
        held = known.held_by(person)
        within_reach = [
            thing
            for thing in things
            if thing not in known.holders
            and (thing not in known.objects or known.objects[thing].place == stay.place)
        ]
        acts = [Event("drop", person, thing) for thing in held]
        acts += [Event("take", person, thing) for thing in within_reach]
        if acts:
            return rng.choice(acts)
    return Event("move", person, rng.choice([p for p in PLACES if not stay or p != stay.place]))


def tell(rng: Random, event: Event) -> str:
    return rng.choice(TEMPLATES[event.kind]).format(person=event.person, what=event.what)
