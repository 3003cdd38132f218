"""How other toolkits store where documents begin: one file a format, one entry each in FORMATS.

A new format is a file with a `Format` (document_format.py) and an entry here. The command's help
and its checks follow from the entry.
"""

from data_prep.document_formats.blank_lines import BLANK_LINES
from data_prep.document_formats.contextual_mt import CONTEXTUAL_MT
from data_prep.document_formats.document_format import Format
from data_prep.document_formats.focused_concat import FOCUSED_CONCAT
from data_prep.document_formats.g_transformer import G_TRANSFORMER
from data_prep.document_formats.han import HAN
from data_prep.document_formats.json_documents import JSON_DOCUMENTS
from data_prep.document_formats.json_sentences import JSON_SENTENCES
from data_prep.document_formats.muda import MUDA
from data_prep.document_formats.ours import OURS
from data_prep.document_formats.selective_attn import SELECTIVE_ATTN
from data_prep.document_formats.tsv import TSV
from data_prep.document_formats.voita import VOITA

FORMATS: dict[str, Format] = {
    "contextual-mt": CONTEXTUAL_MT,
    "muda": MUDA,
    "han": HAN,
    "focused-concat": FOCUSED_CONCAT,
    "selective-attn": SELECTIVE_ATTN,
    "jsonl": JSON_SENTENCES,
    "jsonl-documents": JSON_DOCUMENTS,
    "tsv": TSV,
    "blank-lines": BLANK_LINES,
    "g-transformer": G_TRANSFORMER,
    "voita": VOITA,
}

__all__ = ["FORMATS", "OURS", "Format"]
