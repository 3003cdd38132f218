"""A blank line between documents, in every language.

There are no ids: the documents are numbered from 1. A blank line at the very beginning or end has
no meaning and is not written.
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


BLANK_LINES = Format(
    read_blanks,
    write_blanks,
    example="a blank line between documents, in every file:  Hello. | Bye. |  | Well.",
)
