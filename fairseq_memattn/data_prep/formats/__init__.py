"""How other toolkits store where documents begin, one entry a format in FORMATS.

The command's help and its checks follow from the entry.
"""

from functools import partial

from fairseq_memattn.data_prep.formats import boundaries, one_file, packed_lines, releases
from fairseq_memattn.data_prep.formats.document_format import Format, read_only, release
from fairseq_memattn.data_prep.text.aligned import read_with_ids

OURS = Format(
    read_with_ids,
    boundaries.write_with_ids,
    boundaries="docid",
    example="PREFIX.docid, one id a line, any text:  talk_1 | talk_1 | talk_2",
)
FORMATS: dict[str, Format] = {
    "contextual-mt": Format(
        boundaries.read_integers,
        boundaries.write_integers,
        boundaries="docids",
        example="PREFIX.docids, one integer a line:  1 | 1 | 2",
    ),
    "muda": Format(
        read_with_ids,
        boundaries.write_with_ids,
        boundaries="docids",
        example="PREFIX.docids, one id a line, any text:  talk_1 | talk_1 | talk_2",
    ),
    "han": Format(  # HAN_NMT (`-train_doc`)
        partial(boundaries.read_first_lines, bases=(0,)),
        partial(boundaries.write_first_lines, base=0),
        boundaries="doc",
        example="PREFIX.doc, the first line of each document, counted from 0:  0 | 10 | 25",
    ),
    "focused-concat": Format(
        partial(boundaries.read_first_lines, bases=(0, 1)),
        partial(boundaries.write_first_lines, base=1),
        boundaries="{source}.heads",
        example="PREFIX.SOURCE.heads, first lines, read from 0 or 1, written from 1:  1 | 11 | 26",
    ),
    "selective-attn": Format(
        boundaries.read_marks,
        partial(boundaries.write_marks, mark=boundaries.MARK),
        reserved=frozenset({boundaries.MARK}),
        example="a line <d> before each document, in every file:  "
        "<d> | Hello. | Bye. | <d> | Well.",
    ),
    "jsonl": release(
        releases.read_records,
        ("columns", "where", "segments"),
        'PREFIX.jsonl, a sentence a line:  {"docid": "talk_1", "en": "Hello.", "es": "Hola."}',
        write=one_file.write_json_sentences,
        one_file="jsonl",
    ),
    "jsonl-documents": Format(
        one_file.read_json_documents,
        one_file.write_json_documents,
        one_file="jsonl",
        example='PREFIX.jsonl, a document a line:  {"docid": "talk_1", "en": ["Hello.", "Bye."]}',
    ),
    "tsv": Format(
        one_file.read_table,
        one_file.write_table,
        takes=("columns",),
        reserved=frozenset({"\t"}),
        one_file="tsv",
        example="PREFIX.tsv, tabs between fields:  "
        "docid en es | talk_1 Hello. Hola. | talk_1 Bye. ...",
    ),
    "blank-lines": Format(
        boundaries.read_blanks,
        partial(boundaries.write_marks, mark=""),
        example="a blank line between documents, in every file:  Hello. | Bye. |  | Well.",
    ),
    "g-transformer": Format(
        partial(packed_lines.read_packed, split=packed_lines.segment_sentences),
        packed_lines.write_segments,
        reserved=frozenset({packed_lines.BEGIN, packed_lines.END}),
        max_tokens=512,
        marks=packed_lines.MARKS,
        reading=packed_lines.EACH_A_DOCUMENT,
        example="lines of at most N tokens:  <s> Hello . </s> <s> Bye . </s> | <s> Well . </s>",
    ),
    "voita": Format(
        partial(packed_lines.read_packed, split=packed_lines.window_sentences),
        packed_lines.write_windows,
        reserved=frozenset({packed_lines.SEPARATOR}),
        reading=packed_lines.EACH_A_DOCUMENT,
        example="four sentences a line, the last one current:  "
        "Hello. _eos Bye. _eos Well. _eos Then?",
    ),
    "guofeng": Format(
        releases.read_guofeng,
        read_only,
        example='GuoFeng, PREFIX.LANG:  <BOOK id="b"> | <CHAPTER id="c"> | Hello. | </CHAPTER> ...',
    ),
    "wmt24pp": release(
        releases.read_wmt24pp,
        ("where", "segments"),
        'WMT24++, en-de_DE.jsonl:  {"lp": "en-de_DE", "document_id": ..., "source": ...}',
    ),
    "wmt": release(
        releases.read_wmt,
        ("where", "segments", "test_suites"),
        'WMT25, WMT26:  {"doc_id": ..., "src_text": ..., "refs": ...}; to: PREFIX.jsonl, '
        '{"doc_id": ..., "hypothesis": ...}',
        write=releases.write_hypotheses,
        one_file="jsonl",
    ),
    "wmt-xml": release(
        releases.read_wmt_xml,
        ("test_suites",),
        "WMT21 to WMT24:  <doc id=...> <src lang=...> <p> <seg id=...>",
    ),
    "dochplt": release(
        releases.read_dochplt,
        ("where",),
        'DocHPLT:  {"lang_pair": "en-xh", "src_doc": {"ids": ..., "sentences": ...}, ...}',
    ),
    "paradocs": release(
        releases.read_paradocs,
        ("where",),
        "ParaDocs, 000.gz:  18 fields between tabs, from src, tgt to src_docid, tgt_docid",
    ),
}
