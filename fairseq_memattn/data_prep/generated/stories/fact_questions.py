"""Questions about a story, with the sentences that prove the answer."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from fairseq_memattn.data_prep.generated.stories.simulation import Event, Simulation, Stay
from fairseq_memattn.data_prep.generated.stories.vocabulary import TEMPLATES

MOST_FACTS = 3


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
