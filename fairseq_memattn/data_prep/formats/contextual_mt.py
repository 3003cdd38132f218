"""contextual-mt: one integer a line beside the text, in PREFIX.docids.

Ids that are integers stay as they are; others become 1, 2, ... in the order of the documents.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from fairseq_memattn.data_prep.formats.document_format import Format, by_document, write_texts
from fairseq_memattn.data_prep.text.aligned import Sentence, read_with_ids
from fairseq_memattn.errors import MemAttnError


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
    """The text, then ids that are integers: whether all are is known at the end."""
    *texts, docids = files
    documents = []
    for docid, document in by_document(sentences):
        count = 0
        for sentence in document:
            write_texts(sentence, texts)
            count += 1
        documents.append((docid, count))
    keep = all(re.fullmatch("0|-?[1-9][0-9]*", docid) for docid, _ in documents)
    for number, (docid, count) in enumerate(documents, start=1):
        docids.write(f"{docid if keep else number}\n" * count)
    return "" if keep else f"the document ids became the integers 1 to {len(documents)}"


CONTEXTUAL_MT = Format(
    read_integers,
    write_integers,
    boundaries="docids",
    example="PREFIX.docids, one integer a line:  1 | 1 | 2",
)
