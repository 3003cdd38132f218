"""Texts in which answers are spans, with the places of answers and supporting facts.

The text is SQuAD's context, or HotpotQA's paragraphs (Gupta and Berant, 2020, section 4.4 and
appendix A.3).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.qa.question_sets import HotpotQuestion, Paragraph, SquadQuestion

VERDICTS = "<a> yes no </a>"  # before each paragraph: answers that need not occur in it
NEAR_AN_END = 3  # paragraphs at either end, among which a gold one is placed

Extent = tuple[int, int]  # half-open range of characters


@dataclass(frozen=True)
class Sentence:
    """A sentence of HotpotQA: the title of its article, its number there from 0, and its place."""

    title: str
    number: int
    place: Extent


@dataclass(frozen=True)
class Passage:
    """A text with the places of answers.

    answers: the places of accepted answers; empty if no answer is known or in the text
    sentences: the sentences of HotpotQA
    """

    text: str
    answers: tuple[Extent, ...]
    sentences: tuple[Sentence, ...] = ()


def squad_passage(question: SquadQuestion) -> Passage:
    """SQuAD's context. Raises MemAttnError for an answer that is not at its answer_start."""
    text = question.context
    places = []
    for number, span in enumerate(question.spans, start=1):
        end = span.start + len(span.text)
        if span.start < 0 or end > len(text):
            raise MemAttnError(
                f"{question.id!r}, answer {number}: its {len(span.text)} characters from "
                f"answer_start {span.start} exceed the context, which has {len(text)}"
            )
        if text[span.start : end] != span.text:
            raise MemAttnError(
                f"{question.id!r}, answer {number}: its text is {span.text!r:.60}, but at "
                f"answer_start {span.start} the context has {text[span.start : end]!r:.60}"
            )
        if span.text.strip():
            places.append((span.start, end))
    return Passage(text, tuple(places))


def hotpot_passage(
    question: HotpotQuestion,
    *,
    gold_separated: bool = False,
    repeat_question: bool = False,
    seed: int = 1,
) -> Passage:
    """The paragraphs, each after `<a> yes no </a>` and its title, joined by spaces.

    gold_separated: place one gold paragraph among the first three, the other among the last three
    repeat_question: repeat the question after every paragraph
    seed: of the places of gold paragraphs

    The place of the answer is its first occurrence as whole words in the supporting facts, else in
    the gold paragraphs, else in any paragraph (our choice). The answers `yes` and `no` are before
    the first gold paragraph, else before the first paragraph (our choice).
    """
    paragraphs: Sequence[Paragraph] = question.paragraphs
    facts = set(question.supporting_facts)
    if gold_separated:
        paragraphs = separated(question, seed)
    text, blocks, sentences = "", [], []
    for paragraph in paragraphs:
        text = joined(text, VERDICTS) if text else VERDICTS
        begin = len(text)
        text = joined(text, paragraph.title)
        for number, sentence in enumerate(paragraph.sentences):
            text = joined(text, sentence)
            start = len(text) - len(sentence.lstrip())  # without white space around it
            place = start, max(start, len(text.rstrip()))
            sentences.append(Sentence(paragraph.title, number, place))
        blocks.append((begin, len(text), paragraph.title in {title for title, _ in facts}))
        if repeat_question:
            text = joined(text, question.question)
    blocks.sort(key=lambda block: not block[2])
    answer = (question.answer or "").strip()
    if answer in ("yes", "no"):
        regions = [(begin - len(VERDICTS), begin) for begin, _, _ in blocks]
    else:
        regions = [one.place for one in sentences if (one.title, one.number) in facts]
        regions += [(begin, end) for begin, end, _ in blocks]
    return Passage(text, find_answer(text, answer, regions), tuple(sentences))


def joined(text: str, more: str) -> str:
    apart = text[-1:].isspace() or more[:1].isspace() or not more
    return text + more if apart else f"{text} {more}"


def find_answer(text: str, answer: str, regions: Sequence[Extent]) -> tuple[Extent, ...]:
    """The place of an answer, if it is found. regions: ranges to search, in this order."""
    if not answer:
        return ()
    pattern = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)")
    for region in regions:
        if match := pattern.search(text, *region):
            return (match.span(),)
    return ()


def separated(question: HotpotQuestion, seed: int) -> list[Paragraph]:
    """The paragraphs with a gold one among the first three, the other among the last three.

    Seed and id determine their order and places; the other paragraphs keep their order (our
    choice). Raises MemAttnError unless there are two gold paragraphs.
    """
    titles = {title for title, _ in question.supporting_facts}
    gold = [paragraph for paragraph in question.paragraphs if paragraph.title in titles]
    if len(gold) != 2:
        raise MemAttnError(
            f"{question.id!r}: --gold-separated needs 2 paragraphs with supporting facts, but its "
            f"context has {len(gold)}"
        )
    draw = Random(f"{seed} {question.id}")
    draw.shuffle(gold)
    order = [paragraph for paragraph in question.paragraphs if paragraph.title not in titles]
    size = len(order) + 2
    first = draw.randrange(min(NEAR_AN_END, size - 1))
    last = draw.randrange(max(size - NEAR_AN_END, first + 1), size)
    order.insert(first, gold[0])
    order.insert(last, gold[1])
    return order
