"""How other toolkits write down where documents begin.

base.py         what a format is
sidecar.py      one id a line beside the text: ours, MuDA, contextual-mt
first_lines.py  a list of first lines: HAN_NMT, focused-concat
markers.py      lines in the text: `<d>` (selective-attn), blank lines
segments.py     `<s> ... </s>` segments: G-Transformer
voita.py        four sentences a line: Voita et al.
"""

from data_prep.document_formats.base import Format
from data_prep.document_formats.first_lines import FOCUSED_CONCAT, HAN
from data_prep.document_formats.markers import BLANK_LINES, SELECTIVE_ATTN
from data_prep.document_formats.segments import G_TRANSFORMER
from data_prep.document_formats.sidecar import CONTEXTUAL_MT, MUDA, OURS
from data_prep.document_formats.voita import VOITA

FORMATS: dict[str, Format] = {
    "contextual-mt": CONTEXTUAL_MT,
    "muda": MUDA,
    "han": HAN,
    "focused-concat": FOCUSED_CONCAT,
    "selective-attn": SELECTIVE_ATTN,
    "blank-lines": BLANK_LINES,
    "g-transformer": G_TRANSFORMER,
    "voita": VOITA,
}

__all__ = ["FORMATS", "OURS", "Format"]
