"""Boundaries as a list of the lines with which documents begin; shared by several formats.

There are no ids: the documents are numbered from 1.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from fairseq_memattn.data_prep.formats.document_format import by_document, lost_ids, write_texts
from fairseq_memattn.data_prep.text.aligned import Sentence, aligned_lines
from fairseq_memattn.data_prep.text.lines import read_lines
from fairseq_memattn.errors import MemAttnError


def read_first_lines(path: Path, bases: Sequence[int]) -> list[int]:
    """The numbers of a list, which increase and begin with one of `bases`.

    Raises MemAttnError for any other list.
    """
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


def read(paths: Sequence[Path], bases: Sequence[int]) -> Iterator[Sentence]:
    """Sentences of documents that begin at the lines that the last of `paths` lists."""
    *texts, boundaries = paths
    firsts = read_first_lines(boundaries, bases)
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


def write(sentences: Iterable[Sentence], files: Sequence[TextIO], base: int) -> str:
    """The text, and the first line of each document counted from `base`."""
    *texts, boundaries = files
    documents = []
    lines = 0
    for docid, document in by_document(sentences):
        boundaries.write(f"{lines + base}\n")
        for sentence in document:
            write_texts(sentence, texts)
            lines += 1
        documents.append(docid)
    return lost_ids(documents)
