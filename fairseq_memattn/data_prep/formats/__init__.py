"""How other toolkits store where documents begin: one file a format, one entry each in FORMATS.

A new format is a file with a `Format` (document_format.py) and an entry here. The command's help
and its checks follow from the entry.
"""

from fairseq_memattn.data_prep.formats.blank_lines import BLANK_LINES
from fairseq_memattn.data_prep.formats.contextual_mt import CONTEXTUAL_MT
from fairseq_memattn.data_prep.formats.document_format import Format
from fairseq_memattn.data_prep.formats.focused_concat import FOCUSED_CONCAT
from fairseq_memattn.data_prep.formats.g_transformer import G_TRANSFORMER
from fairseq_memattn.data_prep.formats.han import HAN
from fairseq_memattn.data_prep.formats.json_documents import JSON_DOCUMENTS
from fairseq_memattn.data_prep.formats.json_sentences import JSON_SENTENCES
from fairseq_memattn.data_prep.formats.muda import MUDA
from fairseq_memattn.data_prep.formats.ours import OURS
from fairseq_memattn.data_prep.formats.selective_attn import SELECTIVE_ATTN
from fairseq_memattn.data_prep.formats.tsv import TSV
from fairseq_memattn.data_prep.formats.voita import VOITA

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
