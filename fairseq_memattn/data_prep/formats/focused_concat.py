"""focused-concat: the first line of each document in PREFIX.SOURCE.heads.

Lines are counted from 0 or 1 when they are read, as the first number says, and from 1 when they
are written.
"""

from functools import partial

from fairseq_memattn.data_prep.formats.document_format import Format
from fairseq_memattn.data_prep.formats.first_lines import read, write

FOCUSED_CONCAT = Format(
    partial(read, bases=(0, 1)),
    partial(write, base=1),
    boundaries="{source}.heads",
    example="PREFIX.SOURCE.heads, first lines, read from 0 or 1, written from 1:  1 | 11 | 26",
)
