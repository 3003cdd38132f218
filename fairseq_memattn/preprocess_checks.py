"""Checks of the text that fairseq-preprocess reads, before it writes anything."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from fairseq_memattn.errors import MemAttnError, check_least


def check_preprocessing() -> None:
    """Lets fairseq-preprocess, if that is the running command, check its options and its text.

    The import of the command would set up logging.
    """
    command = sys.modules.get("fairseq_cli.preprocess")
    if command is not None:
        command.main = _checked(command.main)  # type: ignore[attr-defined]


def _checked(main: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(main)
    def main_(args: Any) -> None:
        check_least(args, "workers", 1)
        for files in _splits(args):
            check_text(files)
        main(args)

    return main_


def _splits(args: Any) -> Iterator[list[str]]:
    """The files of each split, one for each language."""
    languages = [args.source_lang] if args.only_source else [args.source_lang, args.target_lang]
    endings = [f".{language}" if language else "" for language in languages]
    for prefixes in (args.trainpref, args.validpref, args.testpref):
        for prefix in prefixes.split(",") if prefixes else ():
            yield [f"{prefix}{ending}" for ending in endings]


def check_text(files: list[str]) -> None:
    """Raises MemAttnError for files that are missing, no UTF-8 or of different numbers of lines.

    files: lines of each are translations of those of the first
    """
    lengths = [_count_lines(file) for file in files]
    for file, length in zip(files, lengths, strict=True):
        if length != lengths[0]:
            raise MemAttnError(
                f"{files[0]} and {file} must have the same number of lines, but have {lengths[0]} "
                f"and {length}"
            )


def _count_lines(file: str) -> int:
    if not os.path.exists(file):
        raise MemAttnError(f"{file} does not exist")
    with open(file, "rb") as lines:
        number = 0
        for number, line in enumerate(lines, start=1):
            try:
                line.decode("utf-8")
                if b"\r" in line.removesuffix(b"\n").removesuffix(b"\r"):
                    raise MemAttnError(
                        f"{file}, line {number} has a carriage return, which fairseq takes for "
                        "the end of a line"
                    )
            except UnicodeDecodeError as error:
                raise MemAttnError(
                    f"{file}, line {number} must be UTF-8, but is not at byte {error.start + 1} "
                    f"(0x{line[error.start]:02x})"
                ) from None
    return number
