"""Strict reading of lines."""

from codecs import BOM_UTF8
from pathlib import Path


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, split at newlines only.

    Raises ValueError, which names file and line, for bytes that are not UTF-8, and for a byte-order
    mark, which would become part of the text.
    """
    content = path.read_bytes()
    if content.startswith(BOM_UTF8):
        raise ValueError(f"{path}, line 1: begins with a byte-order mark; save it without")
    lines: list[str] = []
    if not content:
        return lines
    for number, raw in enumerate(content.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            lines.append(raw.decode("utf-8").removesuffix("\r"))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: not UTF-8 at byte {error.start + 1} of the line"
            ) from None
    return lines
