"""Translate documents with a folder that `memattn export` has written, without fairseq.

  memattn translate FOLDER < document.txt > translation.txt

The text has one sentence a line, and an empty line between two documents. So has the output. A
model of --task document_translation sees the previous sentences and its own translations of them.
"""

import argparse
import sys
from dataclasses import asdict
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_memattn.cli.outputs import check_outputs, write_text
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.evaluation.fairseq_output import read_lines

if TYPE_CHECKING:
    import torch

    from fairseq_memattn.transformers.document_translator import DocumentTranslator
    from fairseq_memattn.transformers.translation_settings import SearchOptions

SEARCH = ("beam", "lenpen", "max_len_a", "max_len_b", "batch_size")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = __doc__
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="folder that `memattn export` has written")
    add("--input", type=Path, metavar="FILE", help="text to translate (default: standard input)")
    add("--output", type=Path, metavar="FILE", help="file to write (default: standard output)")
    add("--beam", type=int, default=5, help="beam size (default: %(default)s)")
    add("--lenpen", type=float, default=1.0, help="length penalty (default: %(default)s)")
    add(
        "--max-len-a",
        type=float,
        default=0.0,
        help="a translation has at most a times the tokens of its sentence and b tokens "
        "(default: %(default)s)",
    )
    add("--max-len-b", type=int, default=200, help="b (default: %(default)s)")
    add(
        "--batch-size",
        type=int,
        default=32,
        help="number of documents, or without target context sentences, that are translated side "
        "by side; it changes no translation (default: %(default)s)",
    )
    add("--device", help="such as cpu, cuda or cuda:1 (default: cuda if there is a GPU)")


def run(args: argparse.Namespace) -> None:
    check(args)
    lines = read(args.input)
    from transformers.utils.logging import disable_progress_bar

    from fairseq_memattn.transformers.document_translator import DocumentTranslator
    from fairseq_memattn.transformers.translation_settings import SearchOptions

    options = SearchOptions(**{name: getattr(args, name) for name in SEARCH})
    if not sys.stderr.isatty():
        disable_progress_bar()
    translator = DocumentTranslator.from_pretrained(args.folder, device=device_of(args.device))
    text = "".join(f"{line}\n" for line in translated(translator, lines, options, args.input))
    if args.output:
        write_text(args.output, text)
    else:
        sys.stdout.write(text)


def check(args: argparse.Namespace) -> None:
    """Raises ValueError for files and folders that do not exist or would be overwritten."""
    if not args.folder.is_dir():
        raise ValueError(f"{args.folder}: there is no such folder")
    if args.input and not args.input.is_file():
        raise ValueError(f"--input {args.input}: there is no such file")
    check_outputs({"--output": args.output}, [args.input])


def read(path: Path | None) -> list[str]:
    """The lines of the input. Raises ValueError for one without text."""
    lines = read_lines(path or Path("/dev/stdin"))
    if not any(map(str.strip, lines)):
        raise ValueError(f"{name_of(path)} has no text to translate")
    return lines


def name_of(path: Path | None) -> str:
    return f"--input {path}" if path else "the standard input"


def translated(
    translator: "DocumentTranslator", lines: list[str], options: "SearchOptions", path: Path | None
) -> list[str]:
    """The translation of each line; empty lines stay empty.

    Raises MemAttnError, which has the number of the line, for one that cannot be translated.
    """
    from fairseq_memattn.transformers.document_translator import SentenceError

    groups = groupby(range(len(lines)), key=lambda number: bool(lines[number].strip()))
    documents = [list(numbers) for has_text, numbers in groups if has_text]
    texts = [[lines[number] for number in document] for document in documents]
    try:
        found = translator.translate(texts, progress=True, **asdict(options))
    except SentenceError as error:
        line = documents[error.document][error.sentence] + 1
        raise MemAttnError(f"{name_of(path)}, line {line}: {error.reason}") from None
    by_line = dict(zip(chain(*documents), chain(*found), strict=True))
    return [by_line.get(number, "") for number in range(len(lines))]


def device_of(name: str | None) -> "torch.device":
    """Raises MemAttnError for a device that does not exist."""
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise MemAttnError(f"--device {name} cannot be used: {reason}") from None
    return device
