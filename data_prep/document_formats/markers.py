"""Boundaries as lines of the text itself: `<d>` before each document, or blank lines between.

`<d>` lines are the form of the data of Maruf et al. (2019), selective-attn, which G-Transformer's
scripts start from too. The boundaries stand at the same lines in every language. There are no ids:
the documents are numbered from 1. A blank line at the very beginning or end says nothing, and is
not written.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from data_prep.aligned import Sentence, aligned_lines
from data_prep.document_formats.base import Format, by_document, lost_ids, write_texts
from data_prep.files import DataError

MARK = "<d>"


def without_sentence(path: Path, line: int) -> DataError:
    """The error for a document that ends where it begins."""
    return DataError(f"{path}, line {line}: the document before this boundary has no sentence")


def read_marks(paths: Sequence[Path]) -> Iterator[Sentence]:
    """Sentences of documents that begin with a line `<d>`."""
    document = lines = 0
    empty = False
    for lines, row in aligned_lines(paths):
        marked = [line.strip() == MARK for line in row]
        if all(marked):
            if empty:
                raise without_sentence(paths[0], lines)
            document += 1
            empty = True
        elif any(marked):
            raise DataError(
                f"{paths[marked.index(False)]}, line {lines}: must be {MARK} as in "
                f"{paths[marked.index(True)]}, but is {row[marked.index(False)]!r}"
            )
        elif document == 0:
            raise DataError(f"{paths[0]}, line {lines}: text before the first {MARK}")
        else:
            empty = False
            yield Sentence(row, str(document), lines)
    if empty:
        raise DataError(f"{paths[0]}, line {lines}: no sentence after the last {MARK}")


def write_marks(sentences: Iterable[Sentence], files: Sequence[TextIO]) -> str:
    """A line `<d>` before each document."""
    documents = []
    for docid, document in by_document(sentences):
        for file in files:
            file.write(MARK + "\n")
        for sentence in document:
            write_texts(sentence, files)
        documents.append(docid)
    return lost_ids(documents)


def read_blanks(paths: Sequence[Path]) -> Iterator[Sentence]:
    """Sentences of documents with a line between them that is blank in every language."""
    document = 1
    empty = True
    for number, row in aligned_lines(paths):
        if any(line.strip() for line in row):
            empty = False
            yield Sentence(row, str(document), number)
        elif not empty:
            document += 1
            empty = True
        elif number > 1:
            raise without_sentence(paths[0], number)


def write_blanks(sentences: Iterable[Sentence], files: Sequence[TextIO]) -> str:
    """A blank line between two documents."""
    documents: list[str] = []
    for docid, document in by_document(sentences):
        if documents:
            for file in files:
                file.write("\n")
        for sentence in document:
            write_texts(sentence, files)
        documents.append(docid)
    return lost_ids(documents)


SELECTIVE_ATTN = Format(
    read_marks,
    write_marks,
    reserved=frozenset({MARK}),
    example="a line <d> before each document, in every file:  <d> | Hello. | Bye. | <d> | Well.",
)
BLANK_LINES = Format(
    read_blanks,
    write_blanks,
    example="a blank line between documents, in every file:  Hello. | Bye. |  | Well.",
)
