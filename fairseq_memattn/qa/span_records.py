"""Files of prepared data for --task span_answering: records of questions, and arrays of numbers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairseq_memattn.evaluation.fairseq_output import read_lines
from fairseq_memattn.qa.question_sets import Record

# The types of the arrays of a split. The files bin/NAME/SPLIT have no header.
#   places: two numbers for each piece of a context: its first character and the one after its last
#   answers: two for each question: the first and the last piece of its first answer; ABSENT if the
#       context does not have it, NOT_PUBLIC if it is not public
#   tags: one for each piece of a context: 1 in supporting facts, else 0
NUMBERS: dict[str, np.dtype[Any]] = {
    "places": np.dtype("<i4"),
    "answers": np.dtype("<i4"),
    "tags": np.dtype("u1"),
}
ABSENT, NOT_PUBLIC = -1, -2


@dataclass(frozen=True)
class SentencePlace:
    """A sentence of HotpotQA in a context.

    title, number: its article, and its number in the article's paragraph, from 0
    begin, end: its first character in the context and the one after its last
    """

    title: str
    number: int
    begin: int
    end: int


@dataclass(frozen=True)
class SpanRecord(Record):
    """A question and its context, of which the answer is a part.

    type: bridge or comparison in HotpotQA; else empty
    places: the first character of each accepted answer in the context, and the one after its last
    facts: title and number of each sentence that supports the answer, in the context or not
    """

    type: str
    question: str
    context: str
    places: tuple[tuple[int, int], ...]
    sentences: tuple[SentencePlace, ...]
    facts: frozenset[tuple[str, int]]

    def supports(self, sentence: SentencePlace) -> bool:
        """Whether a sentence is a supporting fact."""
        return (sentence.title, sentence.number) in self.facts


def record_of(line: str) -> SpanRecord:
    """The record in a line of a file. Raises ValueError for any other content."""
    try:
        entry: dict[str, Any] = json.loads(line)
        return SpanRecord(
            entry["rules"],
            entry["id"],
            tuple(entry["answers"]),
            entry["type"],
            entry["question"],
            entry["context"],
            tuple((begin, end) for begin, end in entry["places"]),
            tuple(SentencePlace(*sentence) for sentence in entry["sentences"]),
            frozenset((title, number) for title, number in entry["facts"]),
        )
    except (KeyError, RecursionError, TypeError, ValueError):
        raise ValueError("not a record of a question for --task span_answering") from None


def read_span_records(path: Path) -> Iterator[SpanRecord]:
    """The records of a file. Raises ValueError, which names the line, for any other content."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield record_of(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None


def read_numbers(folder: Path, name: str, split: str, expected: int) -> NDArray[Any]:
    """The array `name`, one of `NUMBERS`, of a split, mapped from the disk: (expected,).

    Raises ValueError if the file is missing or does not have `expected` numbers.
    """
    path = folder / name / split
    if not path.is_file():
        raise ValueError(
            f"{path}: there is no such file; `memattn prepare squad --spans` writes it"
        )
    kind = NUMBERS[name]
    found = path.stat().st_size / kind.itemsize
    if found != expected:
        raise ValueError(
            f"{path}: must have {expected} numbers to fit the texts, but has {found:g}"
        )
    return np.memmap(path, kind, mode="r") if expected else np.zeros(0, kind)
