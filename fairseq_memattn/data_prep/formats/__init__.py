"""How other toolkits store where documents begin, one entry a format in FORMATS.

The command's help and its checks follow from the entry.
"""

from functools import partial

from fairseq_memattn.data_prep.formats.boundaries import (
    MARK,
    read_blanks,
    read_first_lines,
    read_integers,
    read_marks,
    write_first_lines,
    write_integers,
    write_marks,
    write_with_ids,
)
from fairseq_memattn.data_prep.formats.document_format import Format, read_only, release
from fairseq_memattn.data_prep.formats.one_file import (
    read_json_documents,
    read_table,
    write_json_documents,
    write_json_sentences,
    write_table,
)
from fairseq_memattn.data_prep.formats.packed_lines import (
    BEGIN,
    EACH_A_DOCUMENT,
    END,
    MARKS,
    SEPARATOR,
    read_packed,
    segment_sentences,
    window_sentences,
    write_segments,
    write_windows,
)
from fairseq_memattn.data_prep.formats.releases import (
    read_dochplt,
    read_guofeng,
    read_paradocs,
    read_records,
    read_wmt,
    read_wmt24pp,
    read_wmt_xml,
    write_hypotheses,
)
from fairseq_memattn.data_prep.text.aligned import read_with_ids

OURS = Format(
    read_with_ids,
    write_with_ids,
    boundaries="docid",
    example="PREFIX.docid, one id a line, any text:  talk_1 | talk_1 | talk_2",
)
FORMATS: dict[str, Format] = {
    "contextual-mt": Format(
        read_integers,
        write_integers,
        boundaries="docids",
        example="PREFIX.docids, one integer a line:  1 | 1 | 2",
    ),
    "muda": Format(
        read_with_ids,
        write_with_ids,
        boundaries="docids",
        example="PREFIX.docids, one id a line, any text:  talk_1 | talk_1 | talk_2",
    ),
    "han": Format(  # HAN_NMT (`-train_doc`)
        partial(read_first_lines, bases=(0,)),
        partial(write_first_lines, base=0),
        boundaries="doc",
        example="PREFIX.doc, the first line of each document, counted from 0:  0 | 10 | 25",
    ),
    "focused-concat": Format(
        partial(read_first_lines, bases=(0, 1)),
        partial(write_first_lines, base=1),
        boundaries="{source}.heads",
        example="PREFIX.SOURCE.heads, first lines, read from 0 or 1, written from 1:  1 | 11 | 26",
    ),
    "selective-attn": Format(
        read_marks,
        partial(write_marks, mark=MARK),
        reserved=frozenset({MARK}),
        example="a line <d> before each document, in every file:  "
        "<d> | Hello. | Bye. | <d> | Well.",
    ),
    "jsonl": release(
        read_records,
        ("columns", "where", "segments"),
        'PREFIX.jsonl, a sentence a line:  {"docid": "talk_1", "en": "Hello.", "es": "Hola."}',
        write=write_json_sentences,
        one_file="jsonl",
    ),
    "jsonl-documents": Format(
        read_json_documents,
        write_json_documents,
        one_file="jsonl",
        example='PREFIX.jsonl, a document a line:  {"docid": "talk_1", "en": ["Hello.", "Bye."]}',
    ),
    "tsv": Format(
        read_table,
        write_table,
        takes=("columns",),
        reserved=frozenset({"\t"}),
        one_file="tsv",
        example="PREFIX.tsv, tabs between fields:  "
        "docid en es | talk_1 Hello. Hola. | talk_1 Bye. ...",
    ),
    "blank-lines": Format(
        read_blanks,
        partial(write_marks, mark=""),
        example="a blank line between documents, in every file:  Hello. | Bye. |  | Well.",
    ),
    "g-transformer": Format(
        partial(read_packed, split=segment_sentences),
        write_segments,
        reserved=frozenset({BEGIN, END}),
        max_tokens=512,
        marks=MARKS,
        reading=EACH_A_DOCUMENT,
        example="lines of at most N tokens:  <s> Hello . </s> <s> Bye . </s> | <s> Well . </s>",
    ),
    "voita": Format(
        partial(read_packed, split=window_sentences),
        write_windows,
        reserved=frozenset({SEPARATOR}),
        reading=EACH_A_DOCUMENT,
        example="four sentences a line, the last one current:  "
        "Hello. _eos Bye. _eos Well. _eos Then?",
    ),
    "guofeng": Format(
        read_guofeng,
        read_only,
        example='GuoFeng, PREFIX.LANG:  <BOOK id="b"> | <CHAPTER id="c"> | Hello. | </CHAPTER> ...',
    ),
    "wmt24pp": release(
        read_wmt24pp,
        ("where", "segments"),
        'WMT24++, en-de_DE.jsonl:  {"lp": "en-de_DE", "document_id": ..., "source": ...}',
    ),
    "wmt": release(
        read_wmt,
        ("where", "segments", "test_suites"),
        'WMT25, WMT26:  {"doc_id": ..., "src_text": ..., "refs": ...}; to: PREFIX.jsonl, '
        '{"doc_id": ..., "hypothesis": ...}',
        write=write_hypotheses,
        one_file="jsonl",
    ),
    "wmt-xml": release(
        read_wmt_xml,
        ("test_suites",),
        "WMT21 to WMT24:  <doc id=...> <src lang=...> <p> <seg id=...>",
    ),
    "dochplt": release(
        read_dochplt,
        ("where",),
        'DocHPLT:  {"lang_pair": "en-xh", "src_doc": {"ids": ..., "sentences": ...}, ...}',
    ),
    "paradocs": release(
        read_paradocs,
        ("where",),
        "ParaDocs, 000.gz:  18 fields between tabs, from src, tgt to src_docid, tgt_docid",
    ),
}
