"""Faults that are known and stay, with the reason."""

import re
from typing import NamedTuple


class Known(NamedTuple):
    """command: the kind of command line; fault, text: what is found in the fault and output."""

    command: str
    fault: str
    text: str
    reason: str


PATHS = "torch, SentencePiece and logging take no path that is not UTF-8"
LARGE = "a generated corpus may have as many documents as are asked for"
FULL = "one of several outputs is on a full disk or a link to nowhere: those before it are whole"
WRITERS = "contrast|spans|score|answers|cxmi|perplexity|import_model|plot"
NO_SPACE = "No space left on device|No such file or directory"
KNOWN = [
    Known("", "", r"surrogates not allowed|LoadFromFile\(\)", PATHS),
    Known("prepare", "did not end", "", LARGE),
    Known(WRITERS, "left behind", NO_SPACE, FULL),
]


def reason_for(command: str, fault: str, text: str) -> str:
    """Why a fault stays, or nothing."""
    for known in KNOWN:
        patterns = ((known.command, command), (known.fault, fault), (known.text, text))
        if all(re.search(pattern, where) for pattern, where in patterns):
            return known.reason
    return ""
