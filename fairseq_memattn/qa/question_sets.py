"""Readers of question answering sets in their official JSON, and of the records of prepared data.

HotpotQA (Yang et al., 2018), https://hotpotqa.github.io
SQuAD 1.1 (Rajpurkar et al., 2016), https://rajpurkar.github.io/SQuAD-explorer
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_memattn.evaluation.fairseq_output import read_lines
from fairseq_memattn.files import parse_json, read_json
from fairseq_memattn.qa.answer_scores import HOTPOTQA, RULES, SQUAD

NAMES = {str: "text", list: "a list", dict: "an object", int: "a whole number"}
RECORDS = ".jsonl"  # suffix of files of records


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a context of HotpotQA, from the Wikipedia article `title`."""

    title: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class HotpotQuestion:
    """A record of HotpotQA.

    answer: None in the test set, where it is not public
    type: bridge or comparison; None in the test set
    level: easy, medium or hard; None in the test set
    supporting_facts: title and number of a sentence, from 0, of each; empty in the test set. Some
        files name sentences that the context does not have
    """

    id: str
    question: str
    answer: str | None
    type: str | None
    level: str | None
    supporting_facts: tuple[tuple[str, int], ...]
    paragraphs: tuple[Paragraph, ...]

    @property
    def answers(self) -> tuple[str, ...]:
        """The accepted answers."""
        return () if self.answer is None else (self.answer,)


@dataclass(frozen=True)
class Span:
    """An answer of SQuAD; start is the position of its first character in the context."""

    text: str
    start: int


@dataclass(frozen=True)
class SquadQuestion:
    """A question of SQuAD about a paragraph, `context`, of the Wikipedia article `title`."""

    id: str
    question: str
    spans: tuple[Span, ...]
    context: str
    title: str

    @property
    def answers(self) -> tuple[str, ...]:
        """The accepted answers; several of them may be equal."""
        return tuple(span.text for span in self.spans)


@dataclass(frozen=True)
class Record:
    """What scoring needs of a question.

    rules: of the evaluation, one of `RULES`
    answers: the accepted answers; empty if they are not public
    """

    rules: str
    id: str
    answers: tuple[str, ...]


Question = HotpotQuestion | SquadQuestion


def read_hotpotqa(path: Path) -> Iterator[HotpotQuestion]:
    """The records of a file of HotpotQA, in its order.

    Raises ValueError for missing keys, values of another type and repeated ids. The error names the
    file, the record (from 1) and its id.
    """
    content = read_json(path)
    if not isinstance(content, list):
        raise ValueError(f"{path}: not HotpotQA's JSON, which is a list of records")
    seen: dict[str, str] = {}
    for number, entry in enumerate(content, start=1):
        where = _location(path, f"record {number}", entry, "_id")
        found = HotpotQuestion(
            id=_get(entry, "_id", str, where),
            question=_get(entry, "question", str, where),
            answer=_get_optional(entry, "answer", str, where),
            type=_get_optional(entry, "type", str, where),
            level=_get_optional(entry, "level", str, where),
            supporting_facts=tuple(_facts(entry, where)),
            paragraphs=tuple(_paragraphs(entry, where)),
        )
        _check_unique(seen, found.id, where)
        yield found


def _facts(entry: dict[str, Any], where: str) -> Iterator[tuple[str, int]]:
    for fact in _get_optional(entry, "supporting_facts", list, where) or []:
        match fact:
            case [str(title), int(sentence)]:
                yield title, sentence
            case _:
                raise ValueError(
                    f"{where}: a supporting fact must be [title, number], but is {fact!r}"
                )


def _paragraphs(entry: dict[str, Any], where: str) -> Iterator[Paragraph]:
    for number, paragraph in enumerate(_get(entry, "context", list, where), start=1):
        match paragraph:
            case [str(title), list(sentences)] if all(isinstance(one, str) for one in sentences):
                yield Paragraph(title, tuple(sentences))
            case _:
                raise ValueError(
                    f"{where}: paragraph {number} of the context must be [title, [sentence, ...]]"
                )


def read_squad(path: Path) -> Iterator[SquadQuestion]:
    """The questions of a file of SQuAD 1.1, in its order.

    A question without the key `answers` has no spans. Raises ValueError as `read_hotpotqa` does;
    the error names article, paragraph and question, from 1.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path}: not SQuAD's JSON, which is an object with the key 'data'")
    seen: dict[str, str] = {}
    articles = _get(content, "data", list, str(path))
    for number, article in enumerate(articles, start=1):
        at_article = f"{path}, article {number}"
        title = _get(article, "title", str, at_article)
        paragraphs = _get(article, "paragraphs", list, at_article)
        for place, paragraph in enumerate(paragraphs, start=1):
            at_paragraph = f"{at_article} ({title!r}), paragraph {place}"
            context = _get(paragraph, "context", str, at_paragraph)
            for rank, entry in enumerate(_get(paragraph, "qas", list, at_paragraph), start=1):
                where = _location(at_paragraph, f"question {rank}", entry, "id")
                found = SquadQuestion(
                    id=_get(entry, "id", str, where),
                    question=_get(entry, "question", str, where),
                    spans=tuple(_spans(entry, where)),
                    context=context,
                    title=title,
                )
                _check_unique(seen, found.id, where)
                yield found


def _spans(entry: dict[str, Any], where: str) -> Iterator[Span]:
    for number, answer in enumerate(_get_optional(entry, "answers", list, where) or [], start=1):
        at_answer = f"{where}, answer {number}"
        yield Span(
            _get(answer, "text", str, at_answer), _get(answer, "answer_start", int, at_answer)
        )


READERS: dict[str, Callable[[Path], Iterator[Question]]] = {
    HOTPOTQA: read_hotpotqa,
    SQUAD: read_squad,
}


def read_records(path: Path) -> list[Record]:
    """The records of an official file of HotpotQA or SQuAD, or of a .jsonl file of prepared data.

    Raises ValueError as the readers do; for a .jsonl file the error names the line.
    """
    if path.suffix == RECORDS:
        return list(_records(path))
    content = read_json(path)
    if not isinstance(content, (list, dict)):
        raise ValueError(f"{path}: must be a list (HotpotQA) or an object (SQuAD)")
    rules = HOTPOTQA if isinstance(content, list) else SQUAD
    return [Record(rules, found.id, found.answers) for found in READERS[rules](path)]


def record_line(rules: str, question: Question) -> str:
    """A question as a line of a file of records."""
    entry = {"rules": rules, "id": question.id, "answers": question.answers}
    return json.dumps(entry, ensure_ascii=False) + "\n"


def _records(path: Path) -> Iterator[Record]:
    seen: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        entry = parse_json(line, where)
        rules = _get(entry, "rules", str, where)
        if rules not in RULES:
            raise ValueError(
                f"{where}: 'rules' must be one of {', '.join(RULES)}, but is {rules!r}"
            )
        answers = _get(entry, "answers", list, where)
        if not all(isinstance(answer, str) for answer in answers):
            raise ValueError(f"{where}: 'answers' must be a list of texts")
        record = Record(rules, _get(entry, "id", str, where), tuple(answers))
        _check_unique(seen, record.id, where)
        yield record


def _location(before: Path | str, place: str, entry: object, key: str) -> str:
    """The location of an entry in its file, for errors, with its id if it has one."""
    name = entry.get(key) if isinstance(entry, dict) else None
    return f"{before}, {place}" + (f" ({key} {name!r})" if name is not None else "")


def _get(entry: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: must be an object, but is {entry!r:.60}")
    if key not in entry:
        raise ValueError(f"{where}: has no key {key!r}")
    value = entry[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{where}: {key!r} must be {NAMES[kind]}, but is {value!r:.60}")
    return value


def _get_optional(entry: dict[str, Any], key: str, kind: type, where: str) -> Any:
    return _get(entry, key, kind, where) if key in entry else None


def _check_unique(seen: dict[str, str], name: str, where: str) -> None:
    first = seen.setdefault(name, where)
    if first != where:
        raise ValueError(f"{where}: has the same id as {first.rpartition(', ')[2]}")
