"""The format of this project: one document id a line beside the text, any text, in PREFIX.docid."""

from collections.abc import Iterable, Sequence
from typing import TextIO

from fairseq_memattn.data_prep.formats.document_format import Format, write_texts
from fairseq_memattn.data_prep.text.aligned import Sentence, read_with_ids


def write(sentences: Iterable[Sentence], files: Sequence[TextIO]) -> str:
    """The text, and the ids as they are."""
    *texts, docids = files
    for sentence in sentences:
        write_texts(sentence, texts)
        docids.write(sentence.document + "\n")
    return ""


OURS = Format(
    read_with_ids,
    write,
    boundaries="docid",
    example="PREFIX.docid, one id a line, any text:  talk_1 | talk_1 | talk_2",
)
