"""Strict reading of line-aligned text and document ids; shared by all preparations."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, zip_longest
from pathlib import Path
from typing import NamedTuple

from fairseq_memattn.data_prep.text.lines import read_lines
from fairseq_memattn.errors import MemAttnError


class Sentence(NamedTuple):
    """One sentence in every language, its document, and the input line it came from.

    begins: whether the input says that a document begins here, whatever the id before it
    """

    texts: tuple[str, ...]
    document: str
    line: int
    begins: bool = False


def aligned_lines(paths: Sequence[Path]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The number of each line and that line of every file.

    Raises MemAttnError for uneven lengths.
    """
    for number, row in enumerate(zip_longest(*map(read_lines, paths)), start=1):
        if None in row:
            raise MemAttnError(uneven_counts(paths))
        yield number, row


def uneven_counts(paths: Sequence[Path]) -> str:
    """The message for files that should have the same number of lines."""
    counts = ", ".join(f"{path} has {sum(1 for _ in read_lines(path))}" for path in paths)
    return f"the files must have the same number of lines: {counts}"


def refuse_empty(path: Path, number: int, line: str, advice: str = "") -> None:
    """Raise MemAttnError if a line is empty or white space. advice: the end of the message"""
    if not line.strip():
        raise MemAttnError(f"{path}, line {number}: the line is empty{advice}")


def without_empty(sentences: Iterable[Sentence], texts: Sequence[Path]) -> Iterator[Sentence]:
    """The same sentences. texts: their files; raises MemAttnError where a language has no text."""
    for sentence in sentences:
        for path, text in zip(texts, sentence.texts, strict=True):
            refuse_empty(path, sentence.line, text)
        yield sentence


def contiguous(sentences: Iterable[Sentence], docids: Path) -> Iterator[Sentence]:
    """The same sentences. Raises MemAttnError where a document continues after it has ended.

    A document takes 8 bytes of memory if the ids are 1, 2, ..., and that of its id otherwise.
    """
    first_line: dict[str, int] = {}
    numbered = array("q")  # the first lines of the documents 1, 2, ...
    current = None
    for sentence in sentences:
        document = sentence.document
        if sentence.begins or document != current:
            number = int(document) if document.isdecimal() and len(document) < 19 else 0
            first = first_line.get(document)
            if 0 < number <= len(numbered) and document == str(number):
                first = numbered[number - 1]
            if first is not None:
                raise MemAttnError(
                    f"{docids}, line {sentence.line}: document id {document!r} began at line "
                    f"{first} and had already ended; a document must be contiguous"
                )
            if document == str(len(numbered) + 1):
                numbered.append(sentence.line)
            else:
                first_line[document] = sentence.line
        current = document
        yield sentence


def with_unique_ids(sentences: Iterable[Sentence], counts: Counter[str]) -> Iterator[Sentence]:
    """The sentences; the id of an earlier document gets a number: talk, talk.2, talk.3."""
    seen: set[str] = set()
    numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(2))
    before = current = None
    for sentence in sentences:
        if sentence.begins or sentence.document != before:
            before = current = sentence.document
            if current in seen:
                candidates = (f"{before}.{number}" for number in numbers[before])
                current = next(name for name in candidates if name not in seen)
                counts["document ids that occurred before, made unique"] += 1
            seen.add(current)
        yield sentence._replace(document=str(current))


def read_with_ids(paths: Sequence[Path]) -> Iterator[Sentence]:
    """Sentences of one file a language; the last of `paths` has their ids. Refuses empty ids."""
    *_, docids = paths
    for number, (*texts, docid) in aligned_lines(paths):
        refuse_empty(docids, number, docid)
        yield Sentence(tuple(texts), docid.strip(), number)


def read_sentences(texts: Sequence[Path], docids: Path | None) -> Iterator[Sentence]:
    """Sentences of one file a language, with the ids of their documents if there are any."""
    if docids:
        return read_with_ids([*texts, docids])
    return (Sentence(row, "", number) for number, row in aligned_lines(texts))


def read_documents(paths: Sequence[Path]) -> Iterator[Sentence]:
    """As `read_with_ids`; also refuses empty lines and documents that continue after their end."""
    *texts, docids = paths
    return without_empty(contiguous(read_with_ids(paths), docids), texts)
