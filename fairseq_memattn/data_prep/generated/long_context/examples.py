"""Examples: a few sentences that matter among many that do not, and a question about them.

After the tasks of Hsieh et al., "RULER: What's the Real Context Size of Your Long-Context Language
Models?", 2024 (needles, several keys, variables, counts) and Kuratov et al., "BABILong", 2024 (two
facts). Words and templates are ours.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from random import Random
from string import ascii_uppercase
from typing import NamedTuple

from fairseq_memattn.data_prep.generated.discourse import lexicon
from fairseq_memattn.data_prep.generated.discourse.stories import Story
from fairseq_memattn.data_prep.generated.stories.story_examples import PLACES, draw_example

THINGS = [row["english"] for row in lexicon.rows("nouns") if row["class"] == "thing"]
NAMES = [row["english"] for row in lexicon.rows("names")]
NUMBER, VARIABLE = r"\d+", r"\b(?!VAR)[A-Z]{3}\b"
PAIRS, ASKED = 8, 4  # of recall
HOPS = 3  # of each of two chains of variables
STORY = 12  # sentences
SAME_SCENE = 8  # sentences of the built-in text


class Facts(NamedTuple):
    """What a context must have, in this order, and how the prompt goes on after it.

    answers: all that is asked for; pattern: of what could be an answer
    """

    sentences: Sequence[str]
    question: str
    answers: Sequence[str]
    pattern: str


def needle(rng: Random) -> Facts:
    """One number of one thing."""
    return _numbers(rng, 1, 1)


def recall(rng: Random) -> Facts:
    """Several numbers, of which several are asked for at once."""
    return _numbers(rng, PAIRS, ASKED)


def _numbers(rng: Random, pairs: int, asked: int) -> Facts:
    numbers = dict(zip(rng.sample(THINGS, pairs), _distinct(rng, pairs), strict=True))
    told = [f"The special number of the {x} is {number}." for x, number in numbers.items()]
    *most, last = chosen = rng.sample(list(numbers), asked)
    things = f"{', the '.join(most)} and the {last}" if most else last
    s, verb = ("s", "are") if most else ("", "is")
    question = f"What {verb} the special number{s} of the {things}?"
    answer = f"The special number{s} of the {things} {verb}"
    return Facts(told, f"{question}\nAnswer: {answer}", [numbers[x] for x in chosen], NUMBER)


def variables(rng: Random) -> Facts:
    """Two chains of variables, each of which has the value of the one before."""
    names: dict[str, None] = {}
    while len(names) < 2 * (HOPS + 1):
        names["".join(rng.sample(ascii_uppercase, 3))] = None
        names.pop("VAR", None)
    chains = [list(names)[: HOPS + 1], list(names)[HOPS + 1 :]]
    values = _distinct(rng, 2)
    told = [
        [f"VAR {chain[0]} = {value}."] + [f"VAR {b} = VAR {a}." for a, b in pairwise(chain)]
        for chain, value in zip(chains, values, strict=True)
    ]
    mixed = [statement for both in zip(*told, strict=True) for statement in both]
    question = f"Which {HOPS + 1} variables have the value {values[0]}?"
    answer = f"The variables that have the value {values[0]} are VAR"
    return Facts(mixed, f"{question}\nAnswer: {answer}", chains[0], VARIABLE)


def counts(rng: Random) -> Facts:
    """How often somebody does something, beside somebody else who does it too."""
    (name, other), thing = rng.sample(NAMES, 2), rng.choice(THINGS)
    numbers = rng.randint(1, 6), rng.randint(1, 6)
    told = [name] * numbers[0] + [other] * numbers[1]
    rng.shuffle(told)
    question = f"How many times did {name} look for the {thing}?"
    answer = f"The number of times that {name} looked for the {thing} is"
    sentences = [f"{who} looked for the {thing}." for who in told]
    return Facts(sentences, f"{question}\nAnswer: {answer}", [str(numbers[0])], NUMBER)


def two_facts(rng: Random) -> Facts:
    """Where a thing is, which two sentences of a story tell together."""
    story = draw_example(rng, range(STORY, STORY + 1), [2], STORY // 4, Counter())
    question = f"{story.question}\nAnswer: It is in the"
    return Facts(story.sentences, question, [story.answer], "|".join(PLACES))


KINDS: dict[str, Callable[[Random], Facts]] = {
    kind.__name__: kind for kind in (needle, recall, variables, counts, two_facts)
}


def _distinct(rng: Random, count: int) -> list[str]:
    return [str(number) for number in rng.sample(range(10_000, 100_000), count)]


def told(rng: Random) -> Iterator[str]:
    """Sentences without end, of the built-in words."""
    while True:
        story = Story(rng, spoken=False)
        yield from (story.neutral(between=False).en for _ in range(SAME_SCENE))


def cut(text: str) -> list[str]:
    """The sentences of a text, whose blanks and line ends become single blanks.

    Raises ValueError for a text without any.
    """
    found = re.split(r"(?<=[.!?])\s+", " ".join(text.split()))
    if not any(found):
        raise ValueError("`text` must name a file with sentences, but it has none.")
    return found


def read_on(rng: Random, sentences: Sequence[str]) -> Iterator[str]:
    """Sentences without end, from a random one on."""
    start = rng.randrange(len(sentences))
    while True:
        yield from islice(sentences, start, None)
        start = 0


def prompt(
    rng: Random, facts: Facts, others: Iterator[str], length: int, size: Callable[[str], int]
) -> str:
    """The prompt of at most `length` tokens, with the facts at random places in their order.

    others: sentences without end; size: the tokens of a text

    Raises ValueError where the facts alone are too long.
    """
    ending = f"\n\nQuestion: {facts.question}"
    room = length - size(ending) - sum(map(size, facts.sentences))
    if room < 0:
        raise ValueError(
            f"`lengths` must leave room for {len(facts.sentences)} sentences and a question, of "
            f"{length - room} tokens, but has {length}."
        )
    kept: list[str] = []
    for sentence in others:
        room -= size(sentence)
        if room < 0:
            break
        kept.append(sentence)
    places = sorted(rng.choices(range(len(kept) + 1), k=len(facts.sentences)), reverse=True)
    for place, sentence in zip(places, reversed(facts.sentences), strict=True):
        kept.insert(place, sentence)
    return " ".join(kept) + ending


def score(pattern: str, answers: Sequence[str], text: str) -> float:
    """The share of the answers among as many first different candidates in a generated text."""
    found = list(dict.fromkeys(re.findall(pattern, text)))[: len(answers)]
    return len(set(found) & set(answers)) / len(answers)
