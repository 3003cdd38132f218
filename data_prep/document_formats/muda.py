"""MuDA: one document id a line beside the text, any text, in PREFIX.docids."""

from data_prep.aligned import read_with_ids
from data_prep.document_formats.document_format import Format
from data_prep.document_formats.ours import write

MUDA = Format(
    read_with_ids,
    write,
    boundaries="docids",
    example="PREFIX.docids, one id a line, any text:  talk_1 | talk_1 | talk_2",
)
