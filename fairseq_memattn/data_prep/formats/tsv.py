"""Tab-separated values with a header: a column of document ids, and one for each language."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from fairseq_memattn.data_prep.formats.document_format import DOCID, Format
from fairseq_memattn.data_prep.formats.split_files import find_columns, read_tsv
from fairseq_memattn.data_prep.text.aligned import Sentence
from fairseq_memattn.errors import MemAttnError


def read(
    paths: Sequence[Path], languages: Sequence[str], columns: Sequence[tuple[str, str]] = ()
) -> Iterator[Sentence]:
    """Sentences of the rows.

    columns: the names in the header or the numbers, from 1, of languages and ids of documents
        whose column has another name
    """
    names = {name: name for name in (*languages, DOCID)}
    if columns:
        names = find_columns("tsv", columns, languages, paths[:1])
        if DOCID not in names:
            raise MemAttnError(f"--columns must name the column of {DOCID}, such as {DOCID}=1")
    return read_tsv(paths[0], languages, names, Counter())


def write(sentences: Iterable[Sentence], files: Sequence[TextIO], languages: Sequence[str]) -> str:
    """A header, and one row a sentence. Raises MemAttnError for a document id with a tab."""
    files[0].write("\t".join((DOCID, *languages)) + "\n")
    for sentence in sentences:
        if "\t" in sentence.document:
            raise MemAttnError(
                f"line {sentence.line}: the document id {sentence.document!r} contains a tab, "
                "which separates fields in this format"
            )
        files[0].write("\t".join((sentence.document, *sentence.texts)) + "\n")
    return ""


TSV = Format(
    read,
    write,
    reserved=frozenset({"\t"}),
    one_file="tsv",
    example="PREFIX.tsv, tabs between fields:  docid en es | talk_1 Hello. Hola. | talk_1 Bye. ...",
)
