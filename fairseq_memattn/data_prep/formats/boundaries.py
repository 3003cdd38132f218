"""Formats with a file a language: boundaries in a file beside the text, or as lines in the text."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from fairseq_memattn.data_prep.formats.document_format import by_document, lost_ids
from fairseq_memattn.data_prep.text.aligned import Sentence, aligned_lines, read_with_ids
from fairseq_memattn.data_prep.text.lines import read_lines, write_row
from fairseq_memattn.errors import MemAttnError

MARK = "<d>"

# --------------------------------------------------------------- ids beside the text


def write_with_ids(sentences: Iterable[Sentence], files: Sequence[TextIO]) -> str:
    """The text, and the ids as they are."""
    for sentence in sentences:
        write_row(files, (*sentence.texts, sentence.document))
    return ""


def read_integers(paths: Sequence[Path]) -> Iterator[Sentence]:
    """Sentences with ids that are integers; `007` becomes `7`."""
    for sentence in read_with_ids(paths):
        if not re.fullmatch("-?[0-9]+", sentence.document):
            raise MemAttnError(
                f"{paths[-1]}, line {sentence.line}: the document id must be an integer, "
                f"but is {sentence.document!r}"
            )
        sign, digits = "-" * sentence.document.startswith("-"), sentence.document.lstrip("-0")
        yield sentence._replace(document=sign + digits if digits else "0")


def write_integers(sentences: Iterable[Sentence], files: Sequence[TextIO]) -> str:
    """The text, then ids that are integers: the ids if all are, which is known at the end.

    Otherwise they are 1, 2, ... in the order of the documents.
    """
    *texts, docids = files
    documents = []
    for docid, document in by_document(sentences):
        count = 0
        for sentence in document:
            write_row(texts, sentence.texts)
            count += 1
        documents.append((docid, count))
    keep = all(re.fullmatch("0|-?[1-9][0-9]*", docid) for docid, _ in documents)
    for number, (docid, count) in enumerate(documents, start=1):
        docids.write(f"{docid if keep else number}\n" * count)
    return "" if keep else f"the document ids became the integers 1 to {len(documents)}"


# --------------------------------------------------------------- a list of the first lines
# There are no ids: the documents are numbered from 1.


def read_first_lines(paths: Sequence[Path], bases: Sequence[int]) -> Iterator[Sentence]:
    """Sentences of documents that begin at the lines that the last of `paths` lists.

    bases: the numbers with which the list may begin, which is that of the first line
    """
    *texts, boundaries = paths
    firsts = _numbers(boundaries, bases)
    base = firsts[0]
    document = lines = 0
    for lines, row in aligned_lines(texts):
        if document < len(firsts) and firsts[document] == lines - 1 + base:
            document += 1
        yield Sentence(row, str(document), lines)
    if lines == 0:
        raise MemAttnError(f"{texts[0]}: no lines")
    if document < len(firsts):
        raise MemAttnError(
            f"{boundaries}, line {document + 1}: a document must begin at {lines - 1 + base} or "
            f"before, for the text has {lines} lines counted from {base}, "
            f"but begins at {firsts[document]}"
        )


def _numbers(path: Path, bases: Sequence[int]) -> list[int]:
    """The numbers of a list. Raises MemAttnError unless they increase from one of `bases`."""
    numbers: list[int] = []
    for line, text in enumerate(read_lines(path), start=1):
        if not re.fullmatch("[0-9]{1,18}", text.strip()):
            raise MemAttnError(
                f"{path}, line {line}: must be the number of a line, but is {text!r:.60}"
            )
        number = int(text)
        if not numbers and number not in bases:
            allowed = " or ".join(map(str, bases))
            raise MemAttnError(
                f"{path}, line {line}: the first document must begin at {allowed}, "
                f"but begins at {number}"
            )
        if numbers and number <= numbers[-1]:
            raise MemAttnError(
                f"{path}, line {line}: must be greater than the number before, {numbers[-1]}, "
                f"but is {number}"
            )
        numbers.append(number)
    if not numbers:
        raise MemAttnError(f"{path}: no lines")
    return numbers


def write_first_lines(sentences: Iterable[Sentence], files: Sequence[TextIO], base: int) -> str:
    """The text, and the first line of each document counted from `base`."""
    *texts, boundaries = files
    documents = []
    lines = 0
    for docid, document in by_document(sentences):
        boundaries.write(f"{lines + base}\n")
        for sentence in document:
            write_row(texts, sentence.texts)
            lines += 1
        documents.append(docid)
    return lost_ids(documents)


# --------------------------------------------------------------- lines between documents
# There are no ids: the documents are numbered from 1.


def read_blanks(paths: Sequence[Path]) -> Iterator[Sentence]:
    """Sentences of documents with blank lines between them, as `between_blanks`."""
    rows = (Sentence(row, "", number) for number, row in aligned_lines(paths))
    return between_blanks(rows, paths[0])


def between_blanks(sentences: Iterable[Sentence], path: Path) -> Iterator[Sentence]:
    """The sentences with text, in documents that those without text in every language separate.

    A blank line at the very beginning or end has no meaning. path: for errors
    """
    document = 1
    empty = True
    for number, sentence in enumerate(sentences, start=1):
        if any(text.strip() for text in sentence.texts):
            empty = False
            yield sentence._replace(document=str(document))
        elif not empty:
            document += 1
            empty = True
        elif number > 1:
            raise _without_sentence(path, sentence.line)


def read_marks(paths: Sequence[Path]) -> Iterator[Sentence]:
    """Sentences of documents that begin with a line `<d>`.

    This is the form of the data of Maruf et al. (2019), selective-attn, from which G-Transformer's
    scripts start as well.
    """
    document = lines = 0
    empty = False
    for lines, row in aligned_lines(paths):
        marked = [line.strip() == MARK for line in row]
        if all(marked):
            if empty:
                raise _without_sentence(paths[0], lines)
            document += 1
            empty = True
        elif any(marked):
            raise MemAttnError(
                f"{paths[marked.index(False)]}, line {lines}: must be {MARK} as in "
                f"{paths[marked.index(True)]}, but is {row[marked.index(False)]!r}"
            )
        elif document == 0:
            raise MemAttnError(f"{paths[0]}, line {lines}: text before the first {MARK}")
        else:
            empty = False
            yield Sentence(row, str(document), lines)
    if empty:
        raise MemAttnError(f"{paths[0]}, line {lines}: no sentence after the last {MARK}")


def _without_sentence(path: Path, line: int) -> MemAttnError:
    return MemAttnError(f"{path}, line {line}: the document before this boundary has no sentence")


def write_marks(sentences: Iterable[Sentence], files: Sequence[TextIO], mark: str) -> str:
    """A line with the mark before each document; a blank one not before the first."""
    documents: list[str] = []
    for docid, document in by_document(sentences):
        if mark or documents:
            write_row(files, len(files) * [mark])
        for sentence in document:
            write_row(files, sentence.texts)
        documents.append(docid)
    return lost_ids(documents)
