"""Conversion of documents from and to the formats of other toolkits; checks and splits."""

import argparse
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from fairseq_memattn.data_prep.formats import FORMATS, OURS
from fairseq_memattn.data_prep.formats.conversion import Counts, convert_from, convert_to
from fairseq_memattn.data_prep.pipeline.arguments import add_options, name_and, positive
from fairseq_memattn.data_prep.pipeline.outputs import refuse_overwriting
from fairseq_memattn.data_prep.text.aligned import read_documents
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import write_all_or_nothing

SPLITS = ("train", "valid", "test")
DESCRIPTION = """\
The format of this project is PREFIX.LANG, one file a language with one sentence a line, and
PREFIX.docid with one document id a line. The lines of a document are contiguous.

  %(prog)s from han --input ted/train --langs es en --output corpus/train
      reads ted/train.es, ted/train.en and ted/train.doc
      writes corpus/train.es, corpus/train.en and corpus/train.docid
  %(prog)s to contextual-mt --input corpus/train --langs es en --output cmt/train.es-en
      writes cmt/train.es-en.es, cmt/train.es-en.en and cmt/train.es-en.docids
  %(prog)s check corpus/train --langs es en
      checks corpus/train.{es,en,docid} and prints the numbers of documents and sentences
  %(prog)s split --input corpus/all --langs es en --output corpus --valid-docs 50 --test-docs 50
      writes corpus/{train,valid,test}.{es,en,docid}, each document to one split
"""


def check(prefix: str, languages: Sequence[str]) -> Counts:
    """The counts of PREFIX. Raises MemAttnError for wrong input."""
    inputs = OURS.paths(prefix, languages)
    counts = Counts()
    for _ in counts.of(tqdm(read_documents(inputs), unit=" sentences", disable=None)):
        pass
    if counts.sentences == 0:
        raise MemAttnError(f"{inputs[0]}: no lines")
    return counts


def split(
    prefix: str,
    languages: Sequence[str],
    folder: Path,
    valid_docs: int,
    test_docs: int,
    seed: int,
    force: bool = False,
) -> dict[str, Counts]:
    """Split PREFIX by whole documents into FOLDER/{train,valid,test}.

    The documents with the smallest SHA-256 of seed and id form the validation set, the next ones
    the test set, and the rest the training set. The same ids and options therefore give the same
    split on every machine, whatever the order of the documents, which each split keeps. Raises
    MemAttnError where no document remains for training.
    """
    inputs = OURS.paths(prefix, languages)
    outputs = {name: OURS.paths(str(folder / name), languages) for name in SPLITS}
    everything = [path for paths in outputs.values() for path in paths]
    refuse_overwriting(inputs, everything, force)
    documents = list(dict.fromkeys(sentence.document for sentence in read_documents(inputs)))
    if valid_docs + test_docs >= len(documents):
        raise MemAttnError(
            f"--valid-docs and --test-docs must leave at least one of the {len(documents)} "
            f"documents in {inputs[-1]} for training, but are {valid_docs} and {test_docs}"
        )
    documents.sort(key=lambda docid: hashlib.sha256(f"{seed} {docid}".encode()).digest())
    place = dict.fromkeys(documents[valid_docs : valid_docs + test_docs], "test")
    place |= dict.fromkeys(documents[:valid_docs], "valid")
    counts = {}
    with write_all_or_nothing(everything) as files:
        for number, name in enumerate(SPLITS):
            own = files[number * len(inputs) : (number + 1) * len(inputs)]
            chosen = (s for s in read_documents(inputs) if place.get(s.document, "train") == name)
            counts[name] = Counts()
            shown = tqdm(chosen, desc=name, unit=" sentences", disable=None)
            OURS.write(counts[name].of(shown), own)
    return counts


def formats_help() -> str:
    """Every format with its example."""
    rows = (f"  {name:15} {form.example}" for name, form in FORMATS.items())
    return "formats (| is the end of a line):\n" + "\n".join(rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser.epilog = formats_help()
    commands = parser.add_subparsers(dest="command", required=True)
    reading = commands.add_parser(
        "from", help="convert from another format", epilog=formats_help(), formatter_class=formatter
    )
    writing = commands.add_parser(
        "to", help="convert to another format", epilog=formats_help(), formatter_class=formatter
    )
    checking = commands.add_parser("check", help="check files and count documents and sentences")
    splitting = commands.add_parser("split", help="split a corpus by documents")

    langs = {"help": "suffixes of one text or of line-aligned texts, the source first"}
    for command in (reading, writing):
        command.add_argument("format", choices=tuple(FORMATS), metavar="FORMAT", help="see below")
        command.add_argument(
            "--boundaries",
            type=Path,
            metavar="FILE",
            help="file of ids or first lines in the other format, if its name is not as below",
        )
        prefix = {"type": str, "metavar": "PREFIX", "help": "prefix of the output"}
        add_options(command, "--output", output=prefix)
    checking.add_argument("input", metavar="PREFIX", help="PREFIX.LANG and PREFIX.docid")
    for command in (reading, writing, splitting):
        command.add_argument("--input", required=True, metavar="PREFIX", help="prefix of the input")
        add_options(command, "--force")
    for command in (reading, writing, checking, splitting):
        add_options(command, "--langs", langs=langs)
    reading.add_argument(
        "--columns",
        nargs="+",
        type=name_and("NAME=COLUMN", str),
        metavar="NAME=COLUMN",
        help="of tsv: the column of a language or of docid, by its name in the header or its "
        "number, where it has another name",
    )
    reading.add_argument(
        "--drop-empty",
        action="store_true",
        help="leave out and count lines without text in some language; by default they are errors",
    )
    limits = ", ".join(f"{x}: {form.max_tokens}" for x, form in FORMATS.items() if form.max_tokens)
    writing.add_argument(
        "--max-tokens",
        type=positive,
        metavar="N",
        help=f"the most tokens on a line (default for {limits})",
    )
    add_options(splitting, "--output", "--seed")
    splitting.add_argument("--valid-docs", required=True, type=positive, metavar="N")
    splitting.add_argument("--test-docs", required=True, type=positive, metavar="N")


def report(args: argparse.Namespace) -> list[str]:
    """Run the command line; returns the lines to print."""
    if len(set(args.langs)) < len(args.langs):
        raise MemAttnError(f"--langs must name each language once, but is {' '.join(args.langs)}")
    if args.command == "check":
        return [str(check(args.input, args.langs))]
    if args.command == "split":
        counts = split(
            args.input,
            args.langs,
            args.output,
            args.valid_docs,
            args.test_docs,
            args.seed,
            args.force,
        )
        return [f"{name:5} {count}" for name, count in counts.items()]
    form = FORMATS[args.format]
    if args.boundaries and not form.boundaries:
        raise MemAttnError(f"--boundaries {args.boundaries}: {args.format} has no such file")
    if args.command == "from" and args.columns:
        if args.format != "tsv":
            raise MemAttnError("--columns requires the format tsv")
        form = replace(form, read=partial(form.read, columns=args.columns))
    places = (form, args.input, args.langs, args.output)
    if args.command == "from":
        return convert_from(
            *places, boundaries=args.boundaries, drop_empty=args.drop_empty, force=args.force
        )
    if args.max_tokens and not form.max_tokens:
        raise MemAttnError(f"--max-tokens {args.max_tokens}: {args.format} has no such limit")
    return convert_to(
        *places, boundaries=args.boundaries, max_tokens=args.max_tokens, force=args.force
    )


def run(args: argparse.Namespace) -> None:
    """Run the command line."""
    print("\n".join(report(args)))
