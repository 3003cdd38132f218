"""Checks of the text that fairseq-preprocess and fairseq-interactive read."""

from __future__ import annotations

import functools
import io
import os
import sys
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fairseq_memattn.errors import MemAttnError, check_least

RETURN = "has a carriage return, which fairseq takes for the end of a line"
MARK = "begins with a byte-order mark; save it without"
SPACE = "\u2581"  # with which a SentencePiece piece begins a word


def check_text_of_commands() -> None:
    """Lets fairseq-preprocess or fairseq-interactive, if one of them runs, check its text.

    The import of a command would set up logging.
    """
    preprocess = sys.modules.get("fairseq_cli.preprocess")
    if preprocess is not None:
        preprocess.main = _checked(preprocess.main)  # type: ignore[attr-defined]
    interactive = sys.modules.get("fairseq_cli.interactive")
    if interactive is not None:
        interactive.buffered_read = buffered_read  # type: ignore[attr-defined]
        interactive.main = warn_of_foreign_lines(interactive)  # type: ignore[attr-defined]


def buffered_read(input: str, buffer_size: int) -> Iterator[list[str]]:
    """`fairseq_cli.interactive.buffered_read`: the lines of a file or, for "-", of standard input.

    Raises MemAttnError for a line with a carriage return, of which fairseq makes two, and for a
    byte-order mark, which would become part of the first word.
    """
    lines: list[str] = []
    name = "standard input" if input == "-" else f"--input {input}"
    with _opened(input) as stream:
        for number, line in enumerate(stream, start=1):
            if number == 1 and line.startswith(BOM_UTF8.decode()):
                raise MemAttnError(f"{name}, line 1 {MARK}")
            text = line.removesuffix("\n").removesuffix("\r")
            if "\r" in text:
                raise MemAttnError(f"{name}, line {number} {RETURN}")
            lines.append(text.strip())
            if len(lines) >= buffer_size:
                yield lines
                lines = []
    if lines:
        yield lines


def _opened(input: str) -> AbstractContextManager[Iterable[str]]:
    if input != "-":
        return open(input, encoding="utf-8", newline="\n")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict", newline="\n")
    return nullcontext(sys.stdin)


def warn_of_foreign_lines(interactive: Any) -> Callable[..., None]:
    """`fairseq_cli.interactive.main`, which says at its end how many lines are not in pieces."""
    main = interactive.main

    @functools.wraps(main)
    def main_(cfg: Any, *args: Any, **kwargs: Any) -> None:
        make_batches, counts = interactive.make_batches, Counter[str]()
        interactive.make_batches = functools.partial(_counted, make_batches, counts)
        try:
            main(cfg, *args, **kwargs)
        finally:
            interactive.make_batches = make_batches
            if counts["foreign"]:
                print(
                    f"{counts['foreign']} of {counts['all']} lines are not in the pieces of the "
                    "model: half or more of their tokens are unknown, or none begins a word; give "
                    "--bpe and its model, or lines in the pieces of the training data",
                    file=sys.stderr,
                )

    return main_


def _counted(
    make_batches: Callable[..., Iterator[Any]],
    counts: Counter[str],
    lines: Any,
    cfg: Any,
    task: Any,
    *args: Any,
) -> Iterator[Any]:
    dictionary = task.source_dictionary
    of_pieces = any(symbol.startswith(SPACE) for symbol in getattr(dictionary, "symbols", ()))
    for batch in make_batches(lines, cfg, task, *args):
        for tokens in batch.src_tokens if dictionary is not None else ():
            counts["all"] += 1
            counts["foreign"] += _is_foreign(tokens, dictionary, of_pieces)
        yield batch


def _is_foreign(tokens: Any, dictionary: Any, of_pieces: bool) -> bool:
    """Whether a line is not in the pieces of a dictionary.

    Half or more of its tokens are unknown, or none begins a word though the dictionary is
    of_pieces: those of SentencePiece.
    """
    found = [token for token in tokens.tolist() if token >= dictionary.nspecial]
    unknown = int((tokens == dictionary.unk()).sum())
    if unknown and unknown >= len(found):
        return True
    return of_pieces and bool(found) and not any(SPACE in dictionary[token] for token in found)


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
            if number == 1 and line.startswith(BOM_UTF8):
                raise MemAttnError(f"{file}, line 1 {MARK}")
            try:
                line.decode("utf-8")
                if b"\r" in line.removesuffix(b"\n").removesuffix(b"\r"):
                    raise MemAttnError(f"{file}, line {number} {RETURN}")
            except UnicodeDecodeError as error:
                raise MemAttnError(
                    f"{file}, line {number} must be UTF-8, but is not at byte {error.start + 1} "
                    f"(0x{line[error.start]:02x})"
                ) from None
    return number
