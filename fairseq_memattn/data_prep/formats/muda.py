"""MuDA: one document id a line beside the text, any text, in PREFIX.docids."""

from fairseq_memattn.data_prep.formats.document_format import Format
from fairseq_memattn.data_prep.formats.ours import write
from fairseq_memattn.data_prep.text.aligned import read_with_ids

MUDA = Format(
    read_with_ids,
    write,
    boundaries="docids",
    example="PREFIX.docids, one id a line, any text:  talk_1 | talk_1 | talk_2",
)
