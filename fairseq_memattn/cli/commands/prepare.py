"""`memattn prepare CORPUS`: the preparations of `data_prep`, each with options of its own."""

from __future__ import annotations

import argparse

from fairseq_memattn.data_prep.commands import PREPARATIONS, prepare

EPILOG = "`memattn prepare CORPUS --help` lists the options of a preparation."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The preparation, and the arguments that it parses itself."""
    width = max(map(len, PREPARATIONS))
    rows = [f"  {name:{width}}  {summary}" for name, summary in PREPARATIONS.items()]
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "%(prog)s CORPUS [OPTION ...]"
    parser.epilog = "\n".join(["corpora:", *rows, "", EPILOG])
    parser.add_argument(
        "corpus", choices=tuple(PREPARATIONS), metavar="CORPUS", help="the preparation to run"
    )
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    rest.required = False  # Python 3.11 names it among the required ones


def run(args: argparse.Namespace) -> None:
    prepare(args.corpus, args.arguments)
