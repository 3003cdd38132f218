"""Faults that are known and stay, with the reason."""

import re
from typing import NamedTuple


class Known(NamedTuple):
    """command: the kind of command line; fault, text: what is found in the fault and output."""

    command: str
    fault: str
    text: str
    reason: str


KNOWN = [
    Known("", "", "surrogates not allowed", "torch and logging take no path that is not UTF-8"),
    Known(
        "import_model",
        "",
        "No such file or directory: ''",
        "fairseq writes a dictionary to a path with a folder only; to be repaired",
    ),
    Known(
        "own_corpus|prepare",
        "left behind: .*stages/",
        "",
        "a stage that failed keeps its record, and the next run repeats it; to be repaired",
    ),
    Known(
        "prepare",
        "did not end",
        "",
        "a generated corpus may have as many documents as are asked for",
    ),
    Known(
        "contrast|spans|score|answers|cxmi|perplexity",
        "left behind",
        "No space left on device|No such file or directory",
        "one of several outputs is on a full disk or a link to nowhere: those before it are whole",
    ),
    Known(
        "preprocess",
        r"has \d+ sentences of \d+ lines",
        "",
        "fairseq takes a carriage return inside a line for the end of one; to be repaired",
    ),
    Known(
        "train",
        "exit status 0 without training",
        "",
        "fairseq starts no process for --distributed-init-method without a GPU; to be repaired",
    ),
    Known(
        "train",
        "did not end",
        "",
        "a model of 10^20 layers is built until the memory is full; to be repaired",
    ),
]


def reason_for(command: str, fault: str, text: str) -> str:
    """Why a fault stays, or nothing."""
    for known in KNOWN:
        patterns = ((known.command, command), (known.fault, fault), (known.text, text))
        if all(re.search(pattern, where) for pattern, where in patterns):
            return known.reason
    return ""
