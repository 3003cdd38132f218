"""`memattn prepare moses`: convert tokens and pieces back to plain text."""

import argparse
from functools import partial
from pathlib import Path

from fairseq_memattn.data_prep.pipeline.arguments import add_options
from fairseq_memattn.data_prep.pipeline.stages import refuse_overwriting
from fairseq_memattn.data_prep.text.lines import rewrite
from fairseq_memattn.data_prep.text.moses import detokeniser

DESCRIPTION = """\
Convert tokenised and segmented translations to plain text.

  %(prog)s detokenise --lang en --capitalise --input hypotheses.txt --output plain.txt
      joins the subwords of subword-nmt and the tokens of Moses; line i of the output is line i
      of the input
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    command = parser.add_subparsers(dest="command", required=True).add_parser(
        "detokenise", help="convert tokens, segmented or not, to plain text"
    )
    command.add_argument("--lang", required=True, help="the language of the text: en, de, es, ...")
    of_capital = "begin sentences with a capital letter, for IWSLT14"
    command.add_argument("--capitalise", action="store_true", help=of_capital)
    command.add_argument("--input", required=True, type=Path, metavar="FILE")
    add_options(command, "--output", "--workers", output={"metavar": "FILE", "help": "text"})


def run(args: argparse.Namespace) -> None:
    refuse_overwriting([args.input], [args.output])
    make = partial(detokeniser, args.lang, args.capitalise)
    counts = rewrite(args.input, args.output, make, args.workers)
    print(f"{counts['lines']} lines written to {args.output}")
