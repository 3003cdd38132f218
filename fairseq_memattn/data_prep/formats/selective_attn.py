"""A line `<d>` before each document, in every language.

This is the form of the data of Maruf et al. (2019), selective-attn, from which G-Transformer's
scripts start as well. There are no ids: the documents are numbered from 1.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from fairseq_memattn.data_prep.formats.document_format import (
    Format,
    by_document,
    lost_ids,
    without_sentence,
    write_texts,
)
from fairseq_memattn.data_prep.text.aligned import Sentence, aligned_lines
from fairseq_memattn.errors import MemAttnError

MARK = "<d>"


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


SELECTIVE_ATTN = Format(
    read_marks,
    write_marks,
    reserved=frozenset({MARK}),
    example="a line <d> before each document, in every file:  <d> | Hello. | Bye. | <d> | Well.",
)
