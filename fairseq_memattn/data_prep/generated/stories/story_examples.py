"""Examples: a story, a question about it, its answer and the sentences that prove it."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from fairseq_memattn.data_prep.generated.stories.fact_questions import proof, questions
from fairseq_memattn.data_prep.generated.stories.simulation import Event, Simulation
from fairseq_memattn.data_prep.generated.stories.vocabulary import (
    OBJECTS,
    PEOPLE,
    PLACES,
    TEMPLATES,
)

PEOPLE_OF_A_STORY = 4
OBJECTS_OF_A_STORY = 3
MOVES = 0.5  # share of moves where a person could take or drop something as well


class Example(NamedTuple):
    """The texts of an example; facts: the numbers of the supporting sentences, from 0."""

    sentences: tuple[str, ...]
    question: str
    answer: str
    facts: tuple[int, ...]

    @property
    def passage(self) -> str:
        """The story."""
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
    """The events of a story."""
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
    """The event as a sentence."""
    return rng.choice(TEMPLATES[event.kind]).format(person=event.person, what=event.what)
