"""The training text of TED talks as WIT3 and IWSLT release it, `train.tags.*`: a file a language.

Lines of mark-up, such as <talkid> and <title>, come before the lines of each talk.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairseq_memattn.data_prep.text.aligned import Sentence
from fairseq_memattn.data_prep.text.lines import raw_lines, raw_pairs
from fairseq_memattn.errors import MemAttnError

TAG = re.compile(
    "</?(url|keywords|speaker|talkid|title|description|reviewer|translator|doc|transcript)\\b"
)
# What only this format and test sets have, at the beginning of a line.
MARK_UP = re.compile(r"<talkid>[0-9]*</talkid>|<seg id=")


def read_talks(files: Sequence[Path], counts: Counter[str]) -> Iterator[Sentence]:
    """The lines of text.

    A document begins with the first text after a <title>; its id is the number in <talkid>.
    Raises MemAttnError where only one side is mark-up, and for text before the first title.
    """
    talk, title, document = "", False, ""
    taken: Counter[str] = Counter()
    for number, row in enumerate(raw_pairs(files, counts), start=1):
        kind = _kind_of_mark(files, row, number)
        if kind is not None:
            counts["lines of mark-up left out"] += 1
            title = title or kind == "title"
            talk = re.sub("<[^>]*>", "", row[0]).strip() if kind == "talkid" else talk
            continue
        begins = title and any(row)
        if begins:
            # The number of the talk, or else of the document; -2, -3, ... follow if it is taken.
            name = talk or str(taken.total() + 1)
            taken[name] += 1
            document = name if taken[name] == 1 else f"{name}-{taken[name]}"
            talk, title = "", False
        if any(row) and not document:
            raise MemAttnError(f"{files[0]}, line {number}: text before the first <title>")
        yield Sentence(row, document, number, begins)


def is_tagged(path: Path) -> bool:
    """Whether a file has this format, and not that of test sets."""
    marks = (MARK_UP.match(line) for line in raw_lines(path, Counter()))
    return next((mark[0].startswith("<talkid>") for mark in marks if mark), False)


def refuse_mark_up(path: Path, line: int, text: str) -> None:
    """Raises MemAttnError for a line of mark-up in what is read as plain text."""
    if MARK_UP.match(text):
        raise MemAttnError(
            f"{path}, line {line}: {text!r:.40} is mark-up; --format sgm reads such files, given "
            "as SOURCE:TARGET, without it"
        )


def _kind_of_mark(files: Sequence[Path], row: Sequence[str], number: int) -> str | None:
    """The tag at the beginning of the lines of all files; None where they are text."""
    first, *others = (mark and mark[1] for mark in map(TAG.match, row))
    for path, text, kind in zip(files[1:], row[1:], others, strict=True):
        if kind != first:
            raise MemAttnError(
                f"{files[0]}, line {number}: {row[0][:40]!r}, but {path} has {text[:40]!r}; "
                "mark-up must be the same on both sides"
            )
    return first
