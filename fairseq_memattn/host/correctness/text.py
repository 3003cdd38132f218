"""What would shift or mix up lines of the text that fairseq-preprocess and -interactive read."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import decode_line, iterate_lines


def read_in_buffers(
    buffered_read: Callable[..., Any], input: str, buffer_size: int
) -> Iterator[list[str]]:
    """A carriage return in a line is an error.

    The lines are those of a file or, for "-", of standard input. Raises MemAttnError as
    `decode_line` does. fairseq makes two lines of one with a carriage return.
    """
    lines: list[str] = []
    with open(sys.stdin.fileno() if input == "-" else input, "rb", closefd=input != "-") as raw:
        for number, line in enumerate(raw, start=1):
            name = "standard input" if input == "-" else input
            lines.append(decode_line(line, name, number, returns=False).strip())
            if len(lines) >= buffer_size:
                yield lines
                lines = []
    if lines:
        yield lines


def check_splits(main: Callable[[Any], None], args: Any) -> None:
    """The text is UTF-8, has no carriage return in a line, and as many lines in both languages.

    It is read once before anything is written. fairseq would end after a part of the data is
    written where it cannot write the format, or read --alignfile.
    """
    if args.dataset_impl == "fasta":
        raise MemAttnError("--dataset-impl is fasta, which fairseq cannot write")
    if args.alignfile:
        open(args.alignfile, "rb").close()
    for files in _splits(args):
        check_text(files)
    main(args)


def _splits(args: Any) -> Iterator[list[str]]:
    """The files of each split, one for each language."""
    languages = [args.source_lang] if args.only_source else [args.source_lang, args.target_lang]
    endings = [f".{language}" if language else "" for language in languages]
    for prefixes in (args.trainpref, args.validpref, args.testpref):
        for prefix in prefixes.split(",") if prefixes else ():
            yield [f"{prefix}{ending}" for ending in endings]


def check_text(files: list[str]) -> None:
    """Raises MemAttnError for a file as `decode_line` does, and for different numbers of lines.

    files: lines of each are translations of those of the first
    """
    lengths = [sum(1 for _ in iterate_lines(Path(file), returns=False)) for file in files]
    for file, length in zip(files, lengths, strict=True):
        if length != lengths[0]:
            raise MemAttnError(
                f"{files[0]} and {file} must have the same number of lines, but have {lengths[0]} "
                f"and {length}"
            )
