"""The segments of test sets in NIST's format (.sgm) and WIT3's version of it (.xml)."""

import html
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from data_prep.files import DataError
from data_prep.lines import raw_lines

MARK = re.compile(
    r"<doc\b[^>]*\bdocid\s*=\s*[\"']([^\"']*)[\"'][^>]*>|<seg\b[^>]*>(.*?)</seg>", re.I | re.S
)
BEGIN = re.compile(r"<seg\b", re.I)
ENTITY = re.compile("&(amp|lt|gt|quot|apos|#[0-9]+|#x[0-9a-fA-F]+);")  # a lone & is allowed


class Segment(NamedTuple):
    """One sentence of a test set, its document, and the line it begins on."""

    document: str
    text: str
    line: int


def read_segments(path: Path, counts: Counter[str]) -> Iterator[Segment]:
    """The segments of a file, with entities resolved; text outside of <seg> is ignored.

    sacreBLEU's reader is not used, because it requires every <seg> to begin a line and to end on
    it, does not resolve entities, and skips unexpected text.

    Raises DataError, with the line, for a segment outside of a document or without an end, and for
    a file without segments.
    """
    text = "\n".join(raw_lines(path, counts))
    document = None
    found = 0
    for mark in MARK.finditer(text):
        line = text.count("\n", 0, mark.start()) + 1
        if mark[2] is None:
            document = mark[1]
            continue
        if document is None:
            raise DataError(f"{path}, line {line}: a <seg> outside of a <doc docid=...>")
        if BEGIN.search(mark[2]):
            raise DataError(f"{path}, line {line}: a <seg> without </seg>")
        found += 1
        content = ENTITY.sub(lambda entity: html.unescape(entity[0]), mark[2])
        yield Segment(document, " ".join(content.split()), line)
    if found < len(BEGIN.findall(text)):
        raise DataError(f"{path}: the last <seg> has no </seg>")
    if not found:
        raise DataError(f"{path}: no <seg>")


def read_segment_pairs(
    source: Path, target: Path, counts: Counter[str]
) -> Iterator[tuple[str, str, str]]:
    """Document, source and target of each segment.

    Raises DataError where the files differ in the numbers or documents of their segments.
    """
    sides = [list(read_segments(path, counts)) for path in (source, target)]
    for one, other in zip(*sides, strict=False):
        if one.document != other.document:
            raise DataError(
                f"{source}, line {one.line}: document {one.document}, but {target}, line "
                f"{other.line}, has document {other.document}"
            )
        yield one.document, one.text, other.text
    if len(sides[0]) != len(sides[1]):
        raise DataError(f"{source} has {len(sides[0])} segments, but {target} has {len(sides[1])}")
