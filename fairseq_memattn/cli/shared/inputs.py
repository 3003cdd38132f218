"""Checks of the files and texts that a command reads, and of options without effect."""

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fairseq_memattn.cli.shared.outputs import say
from fairseq_memattn.errors import check_least, flag
from fairseq_memattn.evaluation.fairseq_output import signs_of_segmentation
from fairseq_memattn.evaluation.text_columns import file_of, read_column


def require_file(option: str, path: Path, file: Path | None = None) -> None:
    """Raises ValueError, which names the option and the path, where there is no file.

    file: of the path, where that names a column of it as well
    """
    if not (file or path).is_file():
        what = "must be a file" if (file or path).exists() else "there is no such file"
        raise ValueError(f"{option} {path}: {what}")


def refuse_unused(args: argparse.Namespace, names: Iterable[str], reason: str) -> None:
    """Raises ValueError for a given option that would have no effect.

    names: the options, which are None or False by default
    reason: the end of the message, which follows the option
    """
    for name in names:
        if getattr(args, name) is not None and getattr(args, name) is not False:
            raise ValueError(f"{flag(name)} {reason}")


def check_given(
    args: argparse.Namespace, names: Iterable[str], least: float, most: float = math.inf
) -> None:
    """`check_least` of the options that are given."""
    for name in names:
        if getattr(args, name) is not None:
            check_least(args, name, least, most)


def same_lines(option: str, path: Path, lines: list[str], other: str, count: int) -> list[str]:
    """The lines. Raises ValueError unless they are as many as those of the other option's file."""
    if len(lines) != count:
        raise ValueError(f"{option} {path} has {len(lines)} lines, but {other} has {count}")
    return lines


def read_texts(option: str, path: Path, column: str) -> list[str]:
    require_file(option, path, file_of(path))
    return read_column(path, column)


def named_file(option: str, given: str) -> tuple[str | None, Path]:
    """The name, None where there is none, and the file.

    A file that exists, and a path with = after one of its folders, has no name before the =.
    """
    name, equals, path = given.partition("=")
    if file_of(Path(given)).is_file() or ("/" in name and not file_of(Path(path)).is_file()):
        return None, Path(given)
    if not name or (equals and not path):
        raise ValueError(f"{option} must be NAME=FILE or FILE, but is {given!r}")
    return (name, Path(path)) if equals else (None, Path(name))


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
            say(
                f"note: --reference {path}: {len(empty)} of {len(lines)} lines are empty, first "
                f"line {empty[0]}; their sentences have the other references alone"
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
            say(f"warning: {name}: {reason}; scores are comparable only on detokenised text")
