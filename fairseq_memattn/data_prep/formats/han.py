"""HAN_NMT (`-train_doc`): the first line of each document, counted from 0, in PREFIX.doc."""

from functools import partial

from fairseq_memattn.data_prep.formats.document_format import Format
from fairseq_memattn.data_prep.formats.first_lines import read, write

HAN = Format(
    partial(read, bases=(0,)),
    partial(write, base=0),
    boundaries="doc",
    example="PREFIX.doc, the first line of each document, counted from 0:  0 | 10 | 25",
)
