"""Translate documents with a folder that `memattn export` has written, without fairseq.

  memattn translate FOLDER < document.txt > translation.txt

The text has one sentence a line, and an empty line between two documents. So has the output. With
--docids, which names the document of each line, empty lines have no meaning. FILE.jsonl and
FILE.tsv are tables with the columns docid, src and hyp. A model of --task document_translation sees
the previous sentences and its own translations of them.

  memattn translate FOLDER --input test.en --docids test.docid --output out.de --reference test.de

also prints what `memattn score --system out.de --reference test.de --docids test.docid` prints.
"""

import argparse
import io
import sys
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_memattn.cli.commands import score
from fairseq_memattn.cli.shared.inputs import read_texts, refuse_empty, require_file, same_lines
from fairseq_memattn.cli.shared.models import load_translator
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, columns_text
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.evaluation.document_lines import Document, docid_of_each_line, read_documents
from fairseq_memattn.evaluation.fairseq_output import sentences
from fairseq_memattn.evaluation.text_columns import (
    FORMATS,
    file_of,
    format_of,
    has_column,
    is_table,
    read_column,
)
from fairseq_memattn.files import write_text

if TYPE_CHECKING:
    from fairseq_memattn.transformers.document_translator import DocumentTranslator
    from fairseq_memattn.transformers.translation_settings import SearchOptions

STDIN = Path("/dev/stdin")
SEARCH = ("beam", "lenpen", "max_len_a", "max_len_b", "batch_size")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add.file("folder", "folder that `memattn export` has written", metavar="FOLDER")
    add.file(
        "--input",
        "text to translate, or - for standard input; FILE.jsonl:KEY or FILE.tsv:COLUMN is a "
        "column of a table (default: standard input; the column src)",
    )
    add.file(
        "--docids",
        "document id of each line of --input (default: the column docid of a table, if there "
        "is one)",
    )
    add.file(
        "--output", "file to write, when all documents are translated (default: standard output)"
    )
    add.file(
        "--reference",
        "also print what `memattn score` prints for --output and this reference; a column of a "
        "table is ref by default",
    )
    add(
        "--format",
        "of the output: translations as text, or a table with the columns docid, src and hyp "
        "(default: that of the suffix of --output, text for others)",
        choices=FORMATS,
    )
    add("--beam", "beam size (default: %(default)s)", type=int, default=5)
    add("--lenpen", "length penalty (default: %(default)s)", type=float, default=1.0)
    add(
        "--max-len-a",
        "a translation has at most a times the tokens of its sentence and b tokens "
        "(default: %(default)s)",
        type=float,
        default=0.0,
    )
    add("--max-len-b", "b (default: %(default)s)", type=int, default=200)
    add(
        "--batch-size",
        "number of documents, or without target context sentences, that are translated side "
        "by side; it changes no translation (default: %(default)s)",
        type=int,
        default=32,
    )
    add("--device", "such as cpu, cuda or cuda:1 (default: cuda if there is a GPU)")


def run(args: argparse.Namespace) -> None:
    if args.input == Path("-"):
        args.input = None
    check(args)
    lines = read(args.input)
    documents = find_documents(args, lines)
    kind = args.format or format_of(args.output)
    columns = table_columns(lines, documents)
    columns_text(columns, "src", kind)  # what the format cannot store is an error before the work
    if args.reference:
        check_reference(args, len(columns["src"]))
    from fairseq_memattn.transformers.translation_settings import SearchOptions

    options = SearchOptions(**{name: getattr(args, name) for name in SEARCH})
    translator = load_translator(args.folder, args.device)
    by_line = translated(translator, lines, documents, options, args.input)
    if kind == "text":
        columns = {"hyp": [by_line.get(number, "") for number in range(len(lines))]}
    else:
        columns["hyp"] = list(by_line.values())
    text = columns_text(columns, "hyp", kind)
    if args.output:
        write_text(args.output, text)
        print_scores(args)
    else:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        sys.stdout.write(text)


def check(args: argparse.Namespace) -> None:
    if not args.folder.is_dir():
        raise ValueError(f"{args.folder}: there is no such folder")
    if args.reference and (
        args.output is None or args.format not in (None, format_of(args.output))
    ):
        raise ValueError("--reference needs --output, with the suffix of --format if that is given")
    for name in ("input", "docids", "reference"):
        path = getattr(args, name)
        if path:
            require_file(f"--{name}", path, file_of(path))
    inputs = [args.folder, args.input, args.docids, args.reference]
    check_outputs({"--output": args.output}, inputs)


def read(path: Path | None) -> list[str]:
    """The lines of the input. Raises ValueError for one without text."""
    lines = read_column(path or STDIN, "src")
    if not any(map(str.strip, lines)):
        raise ValueError(f"{name_of(path)} has no text to translate")
    return lines


def name_of(path: Path | None) -> str:
    return f"--input {path}" if path else "the standard input"


def find_documents(args: argparse.Namespace, lines: list[str]) -> list[Document]:
    """The documents of the input: by their ids or, without, those between empty lines, numbered."""
    docids = file_of_ids(args)
    if docids is not None:
        return read_documents(docids, args.input or STDIN, len(lines), "--input")
    groups = groupby(range(len(lines)), key=lambda number: bool(lines[number].strip()))
    texts = [list(numbers) for has_text, numbers in groups if has_text]
    return [
        Document(str(name), numbers[0], numbers[-1] + 1)
        for name, numbers in enumerate(texts, start=1)
    ]


def file_of_ids(args: argparse.Namespace) -> Path | None:
    """The file of the document ids: --docids, or an input that is a table with them."""
    if args.docids is None and args.input and is_table(args.input):
        return file_of(args.input) if has_column(args.input, "docid") else None
    return args.docids


def check_reference(args: argparse.Namespace, count: int) -> None:
    """Raises ValueError unless there is a reference for each of the sentences."""
    lines = sentences(read_texts("--reference", args.reference, "ref"), count)
    same_lines("--reference", args.reference, lines, name_of(args.input), count)
    refuse_empty(lines, args.reference)


def print_scores(args: argparse.Namespace) -> None:
    if args.reference is None:
        return
    parser = argparse.ArgumentParser()
    score.add_arguments(parser)
    files = {"system": args.output, "reference": args.reference, "docids": file_of_ids(args)}
    given = [f"--{name}={path}" for name, path in files.items() if path]
    score.run(parser.parse_args(given))


def table_columns(lines: list[str], documents: list[Document]) -> dict[str, list[str]]:
    """The id and the source of each sentence; empty lines between documents are none."""
    return {
        "docid": docid_of_each_line(documents),
        "src": [line for _, start, stop in documents for line in lines[start:stop]],
    }


def translated(
    translator: "DocumentTranslator",
    lines: list[str],
    documents: list[Document],
    options: "SearchOptions",
    path: Path | None,
) -> dict[int, str]:
    """The translation of each line of a document, by its number from 0, in their order."""
    from fairseq_memattn.transformers.document_translator import SentenceError

    texts = [lines[start:stop] for _, start, stop in documents]
    try:
        found = translator.translate(texts, progress=True, **asdict(options))
    except SentenceError as error:
        line = documents[error.document].start + error.sentence + 1
        raise MemAttnError(f"{name_of(path)}, line {line}: {error.reason}") from None
    return {
        start + index: text
        for (_, start, _), document in zip(documents, found, strict=True)
        for index, text in enumerate(document)
    }
