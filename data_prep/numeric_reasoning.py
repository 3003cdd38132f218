"""Generated numeric reasoning over text (GMAT, section 3.2): passages, questions and answers."""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from random import Random

from tqdm import tqdm

if not __package__:  # run as `python data_prep/numeric_reasoning.py`
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from data_prep.files import DataError, read_lines, run_command, write_all_or_nothing
from data_prep.numeric_corpus.examples import Example, draw_example
from data_prep.pipeline import Pipeline, add_common_arguments
from data_prep.stages import Counts
from data_prep.windows import positive

VERSION = 1  # raise it whenever the same options give other text
SPLITS = ("test", "valid", "train")  # in this order the test set does not depend on train's size
PIECE = re.compile(r"\d|[^\W\d]+|[^\w\s]")
SEPARATOR = "</s>"
SMALLEST_LARGEST = 9  # fewer numbers leave few questions whose answer the passage does not hold
DESCRIPTION = """\
Write passages of five sentences about commanders, troops and places, each with a question and an
answer: a number that the passage does not hold, so that it must be computed.

  numeric_reasoning.py --output numbers

FOLDER/text/SPLIT.{passage,question,answer}   an example a line
FOLDER/pieces/SPLIT.input                     question </s> passage, in lower case, digit by digit
FOLDER/pieces/SPLIT.answer                    the answer, digit by digit
FOLDER/bin/                                   fairseq's data (-s input -t answer), one dictionary

The templates and words are the project's own, after the description of the generator of Geva et
al. (2020), which GMAT uses (appendix A.1); the sizes of train and valid are GMAT's. The same
options give the same bytes, and no passage occurs twice.
"""


def pieces(text: str) -> str:
    """Words in lower case, punctuation marks and single digits, with spaces between them."""
    return " ".join(PIECE.findall(text.lower()))


def write_text(
    pipeline: Pipeline, sizes: dict[str, int], seed: int, reuse: float, largest: int
) -> None:
    """Make text/: all splits at once, since no passage may occur in two of them."""
    outputs = [pipeline.path("text", split, part) for split in sizes for part in Example._fields]

    def work() -> Counts:
        counts: Counter[str] = Counter(sizes)
        passages: set[str] = set()
        with write_all_or_nothing(outputs) as files:
            for number, (split, size) in enumerate(sizes.items()):
                first = number * len(Example._fields)
                lines = tqdm(range(size), desc=f"text/{split}", unit=" lines", disable=None)
                for line in lines:
                    rng = Random(f"{seed} {split} {line}")
                    example = new_example(rng, reuse, largest, passages, counts)
                    for part, text in enumerate(example):
                        files[first + part].write(text + "\n")
        return counts

    options = {"version": VERSION, "sizes": sizes, "seed": seed, "reuse": reuse}
    pipeline.stages.run("text", [], outputs, work, **options, largest=largest)


def new_example(
    rng: Random, reuse: float, largest: int, passages: set[str], counts: Counter[str]
) -> Example:
    """An example of a passage that is none of `passages`; then it is one of them."""
    while True:
        example = draw_example(rng, reuse, largest, counts)
        if example.passage not in passages:
            passages.add(example.passage)
            return example
        counts["passages that had occurred"] += 1


def write_pieces(pipeline: Pipeline, split: str) -> None:
    """text/ to pieces/ for one split."""
    inputs = [pipeline.path("text", split, part) for part in Example._fields]
    outputs = pipeline.paths("pieces", split)

    def work() -> Counts:
        longest = 0
        with write_all_or_nothing(outputs) as [source, target]:
            rows = zip(*map(read_lines, inputs), strict=True)
            for row in tqdm(rows, desc=f"pieces/{split}", unit=" lines", disable=None):
                passage, question, answer = map(pieces, row)
                line = f"{question} {SEPARATOR} {passage}"
                longest = max(longest, len(line.split()) + 1)
                source.write(line + "\n")
                target.write(answer + "\n")
        return {"tokens in the longest input, with its end": longest}

    pipeline.stages.run(f"pieces-{split}", inputs, outputs, work)


def prepare(args: argparse.Namespace) -> None:
    """From nothing to bin/."""
    if not 0 <= args.reuse <= 1:
        raise DataError(f"--reuse must be from 0 to 1, but is {args.reuse}")
    if args.largest < SMALLEST_LARGEST:
        raise DataError(f"--largest must be at least {SMALLEST_LARGEST}, but is {args.largest}")
    pipeline = Pipeline(args.output, ["input", "answer"], workers=args.workers, force=args.force)
    sizes = {split: getattr(args, split) for split in SPLITS}
    write_text(pipeline, sizes, args.seed, args.reuse, args.largest)
    for split in SPLITS:
        write_pieces(pipeline, split)
    pipeline.binarise()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option, default, what in (
        ("--train", 223067, "examples to train on"),
        ("--valid", 5146, "examples to validate on"),
        ("--test", 5146, "examples to test on"),
    ):
        top.add_argument(
            option, type=positive, default=default, metavar="N", help=f"{what} (default: {default})"
        )
    top.add_argument(
        "--reuse",
        type=float,
        default=0.999,
        metavar="P",
        help="probability that a word of a template is one that the passage has used already, "
        "where one fits (default: %(default)s)",
    )
    top.add_argument(
        "--largest",
        type=int,
        default=9999,
        metavar="N",
        help="greatest number that somebody has or gains at once (default: %(default)s)",
    )
    top.add_argument(
        "--seed", type=int, default=1, metavar="N", help="another seed gives other examples"
    )
    add_common_arguments(top)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run_command(prepare, parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
