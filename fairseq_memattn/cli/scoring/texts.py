"""What `memattn score` and `memattn align` say of the texts that they compare."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_memattn.evaluation.fairseq_output import signs_of_segmentation


def check_separator(separator: str | None) -> None:
    """Raises ValueError unless the value of --separator is None or one token."""
    if separator is not None and separator.split() != [separator]:
        raise ValueError(f"--separator must be a token without spaces, but is {separator!r}")


def refuse_empty(references: Sequence[str], path: Path) -> None:
    empty = _empty(references)
    if empty:
        raise ValueError(
            f"--reference {path}, line {empty[0]}: there is no reference; {len(empty)} of "
            f"{len(references)} are empty"
        )


def fill_empty(references: Mapping[Path, list[str]]) -> dict[Path, list[str]]:
    """The lines of each file, an empty one replaced by the first of the others that has text.

    A reference that occurs twice changes no score. Prints how many lines a file lacks. Raises
    ValueError for a line that no file has.
    """
    first = [next(filter(str.strip, row), "") for row in zip(*references.values(), strict=True)]
    refuse_empty(first, next(iter(references)))
    for path, lines in references.items():
        if empty := _empty(lines):
            print(
                f"note: --reference {path}: {len(empty)} of {len(lines)} lines are empty, first "
                f"line {empty[0]}; their sentences have the other references alone",
                file=sys.stderr,
            )
    return {
        path: [line if line.strip() else other for line, other in zip(lines, first, strict=True)]
        for path, lines in references.items()
    }


def _empty(lines: Sequence[str]) -> list[int]:
    return [number for number, line in enumerate(lines, start=1) if not line.strip()]


def warn_of_segmentation(texts: Mapping[str, list[str]]) -> None:
    for name, lines in texts.items():
        for reason in signs_of_segmentation(lines):
            print(
                f"warning: {name}: {reason}; scores are comparable only on detokenised text",
                file=sys.stderr,
            )
