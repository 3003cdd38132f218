"""Plain-text tables for the terminal."""

from collections.abc import Sequence

SMALLEST_P = 0.0001


def p_text(p: float) -> str:
    """A p-value in four digits, which is never 0."""
    return f"{p:.4f}" if p >= SMALLEST_P else f"<{SMALLEST_P}"


def table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Rows of equal length as aligned text, one line for each row.

    left: the number of first columns that are left-aligned; the others are right-aligned
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            f"{cell:{'<' if index < left else '>'}{width}}"
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
