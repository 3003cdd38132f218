"""`memattn prepare windows`: sentences to windows, and translated windows to sentences."""

import argparse
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from fairseq_memattn.data_prep.pipeline.arguments import add_numbers, add_options, positive
from fairseq_memattn.data_prep.pipeline.stages import refuse_overwriting
from fairseq_memattn.data_prep.text.aligned import uneven_counts
from fairseq_memattn.data_prep.text.lines import progress, read_lines, write_row
from fairseq_memattn.data_prep.text.windows import (
    checked_rows,
    count_separators,
    last_sentence,
    windows,
)
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import write_all_or_nothing

DESCRIPTION = """\
Convert text with document ids to windows of n sentences, or translations of windows to sentences.

  %(prog)s make --input corpus/train --langs en ru --output windows/train
      reads corpus/train.en, corpus/train.ru and corpus/train.docid (one sentence and one document
      id a line) and writes windows/train.en and windows/train.ru with as many lines
  %(prog)s last --input hypotheses.txt --source windows/test.en --output sentences.txt
      keeps the text after the last separator of each line
"""


def make(
    prefix: str,
    languages: Sequence[str],
    output: str,
    sentences: int,
    separator: str,
    force: bool = False,
) -> int:
    """Write one file of windows a language; returns the number of lines."""
    if len(set(languages)) < len(languages):
        raise MemAttnError(f"--langs must name each language once, but is {' '.join(languages)}")
    inputs = [Path(f"{prefix}.{suffix}") for suffix in (*languages, "docid")]
    outputs = [Path(f"{output}.{language}") for language in languages]
    refuse_overwriting(inputs, outputs, force)
    count = 0
    with write_all_or_nothing(outputs) as files:
        rows = progress(checked_rows(inputs, separator), str(outputs[0]), inputs[0])
        for row in windows(rows, sentences, separator):
            count += 1
            write_row(files, row)
        if count == 0:
            raise MemAttnError(f"{inputs[0]}: no lines")
    return count


def last(
    hypotheses: Path, source: Path, output: Path, separator: str, force: bool = False
) -> list[int]:
    """Write the last sentence of each hypothesis.

    Returns the lines whose number of separators differs from that of the source window. Their
    last sentence is written as well, so that line i remains the translation of line i.
    """
    refuse_overwriting([hypotheses, source], [output], force)
    wrong = []
    pairs = zip_longest(read_lines(hypotheses), read_lines(source))
    with write_all_or_nothing([output]) as [file]:
        for number, (hypothesis, window) in enumerate(pairs, start=1):
            if hypothesis is None or window is None:
                raise MemAttnError(uneven_counts([hypotheses, source]))
            if count_separators(hypothesis, separator) != count_separators(window, separator):
                wrong.append(number)
            file.write(last_sentence(hypothesis, separator) + "\n")
    return wrong


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make", help="convert sentences to windows")
    making.add_argument(
        "--input",
        required=True,
        metavar="PREFIX",
        help="reads PREFIX.LANG for each language and PREFIX.docid",
    )
    texts = {"type": str, "metavar": "PREFIX", "help": "writes PREFIX.LANG for each language"}
    langs = {"help": "suffixes of one text or of several line-aligned texts, e.g. `en ru`"}
    add_options(making, "--langs", "--output", langs=langs, output=texts)
    of_windows = "sentences in a window, the current one included"
    add_numbers(making, {"--sentences": (positive, 4, of_windows)})
    cutting = commands.add_parser("last", help="convert translated windows to sentences")
    of_sources = "the source windows; their numbers of sentences are compared with the translations"
    for option, meaning in (("--input", "a translated window a line"), ("--source", of_sources)):
        cutting.add_argument(option, required=True, type=Path, metavar="FILE", help=meaning)
    add_options(cutting, "--output", output={"metavar": "FILE"})
    for command in (making, cutting):
        add_options(command, "--separator", "--force")


def run(args: argparse.Namespace) -> None:
    if args.command == "make":
        count = make(
            args.input, args.langs, args.output, args.sentences, args.separator, args.force
        )
        print(f"{count} windows written to {args.output}.{{{','.join(args.langs)}}}")
    else:
        wrong = last(args.input, args.source, args.output, args.separator, args.force)
        if wrong:
            print(
                f"warning: in {len(wrong)} lines of {args.input} the number of {args.separator!r} "
                f"differs from {args.source}, first in line {wrong[0]}; "
                "the text after the last one was kept",
                file=sys.stderr,
            )
