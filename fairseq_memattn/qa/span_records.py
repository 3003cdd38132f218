"""Files beside data for span_answering: records of questions, and numbers of their pieces."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairseq_memattn.evaluation.fairseq_output import read_lines
from fairseq_memattn.qa.question_sets import Record

# Of a split's folder: bin/NAME/SPLIT, numbers without a header, and how each is stored.
#   places: two a piece of a context, its first character and the one behind the last
#   answers: two a question, the first and the last piece of its first answer; ABSENT where the
#       context does not have it, NOT_PUBLIC where nobody says what it is
#   tags: one a piece of a context, 1 in supporting facts
NUMBERS: dict[str, np.dtype[Any]] = {
    "places": np.dtype("<i4"),
    "answers": np.dtype("<i4"),
    "tags": np.dtype("u1"),
}
ABSENT, NOT_PUBLIC = -1, -2


@dataclass(frozen=True)
class SentencePlace:
    """A sentence of HotpotQA: its article, its number there from 0, its characters."""

    title: str
    number: int
    begin: int
    end: int


@dataclass(frozen=True)
class SpanRecord(Record):
    """A question and the text that its answer is cut out of.

    type: HotpotQA's, bridge or comparison; else empty
    places: first character of each accepted answer, and the one behind its last
    facts: titles, and numbers of sentences, that support the answer, in the context or not
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
    """A line of a file of records. Raises ValueError where it is another kind of record."""
    entry: dict[str, Any] = json.loads(line)
    try:
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
    except (KeyError, TypeError, ValueError):
        raise ValueError("no record of a question for span_answering") from None


def read_span_records(path: Path) -> Iterator[SpanRecord]:
    """The records of a file; ValueError, with the line, for what is none."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield record_of(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None


def read_numbers(folder: Path, name: str, split: str, expected: int) -> NDArray[Any]:
    """One of `NUMBERS` of a split, mapped from the disk.

    expected: how many numbers there must be. Raises ValueError where there are others, and where
    the file is missing.
    """
    path = folder / name / split
    if not path.is_file():
        raise ValueError(
            f"{path}: there is no such file; `memattn prepare squad --spans` writes it"
        )
    kind = NUMBERS[name]
    found = path.stat().st_size / kind.itemsize
    if found != expected:
        raise ValueError(f"{path}: has {found:g} numbers, but the texts make {expected}")
    return np.memmap(path, kind, mode="r") if expected else np.zeros(0, kind)
