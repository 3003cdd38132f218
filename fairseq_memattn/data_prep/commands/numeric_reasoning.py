"""Generated numeric reasoning over text (GMAT, section 3.2): passages, questions and answers."""

import argparse
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_memattn.data_prep.generated.generated_examples import (
    SPLITS,
    add_size_arguments,
    distinct,
    pieces,
    split_sizes,
)
from fairseq_memattn.data_prep.generated.numeric.examples import Example, draw_example
from fairseq_memattn.data_prep.pipeline import pretrained_subwords
from fairseq_memattn.data_prep.pipeline.arguments import COMMON, add_numbers, add_options
from fairseq_memattn.data_prep.pipeline.binary_data import read_words
from fairseq_memattn.data_prep.pipeline.stages import Counts, locks_output
from fairseq_memattn.data_prep.pipeline.text_to_binary import Pipeline
from fairseq_memattn.data_prep.text.lines import read_lines
from fairseq_memattn.errors import MemAttnError, check_least
from fairseq_memattn.files import write_all_or_nothing

VERSION = 1  # increase it when the same options give other text
SEPARATOR = "</s>"
FEWEST_SENTENCES = 2  # few passages of one sentence have an answer that must be computed
MOST_SENTENCES = 30  # longer passages could exhaust the people that an agent does not have yet
SMALLEST_LARGEST = 9  # with fewer numbers, few answers are not in the passage
DESCRIPTION = """\
Generate passages of five sentences about commanders, troops and places, each with a question and an
answer. The answer is a number that is not in the passage and must be computed.

  %(prog)s --output numbers
  %(prog)s --output shorter --sentences 2 --dictionary numbers/bin/dict.input.txt
      shorter passages, for a model that is trained on them first and then on numbers/
  %(prog)s --output numbers --bert-vocab bert-base-uncased/vocab.txt --dictionary dict.txt
      in BERT's pieces, for a model that begins with BERT

FOLDER/text/SPLIT.{passage,question,answer}   one example a line
FOLDER/pieces/SPLIT.input                     question </s> passage, in lower case, digit by digit
FOLDER/pieces/SPLIT.answer                    the answer, digit by digit
FOLDER/bin/                                   fairseq's data (-s input -t answer), one dictionary

The templates and words are this project's, after the description of the generator of Geva et al.
(2020), which GMAT uses (appendix A.1). The sizes of train and valid are those of GMAT. The same
options give the same bytes, and no passage occurs twice.
"""


def write_text(pipeline: Pipeline, sizes: dict[str, int], seed: int, **drawn: Any) -> None:
    """Write text/ for all splits together, because no passage may occur in two of them.

    drawn: the arguments `reuse`, `largest` and `sentences` of `draw_example`
    """
    outputs = [pipeline.path("text", split, part) for split in sizes for part in Example._fields]

    def work() -> Counts:
        counts: Counter[str] = Counter(sizes)
        passages: set[str] = set()
        with write_all_or_nothing(outputs) as files:
            for number, (split, size) in enumerate(sizes.items()):
                first = number * len(Example._fields)
                draw = partial(draw_example, counts=counts, **drawn)
                for example in distinct(split, size, seed, draw, passages, counts):
                    for part, text in enumerate(example):
                        files[first + part].write(text + "\n")
        return counts

    pipeline.stages.run("text", [], outputs, work, version=VERSION, sizes=sizes, seed=seed, **drawn)


def write_pieces(
    pipeline: Pipeline, split: str, dictionary: Path | None, bert_vocab: Path | None
) -> None:
    """text/ to pieces/ for one split. Raises MemAttnError for a word that the dictionary lacks."""
    cut = pretrained_subwords.bert_segmenter(bert_vocab, lower_case=True) if bert_vocab else str
    known = read_words(dictionary) if dictionary else set()
    texts = [pipeline.path("text", split, part) for part in Example._fields]
    outputs = pipeline.paths("pieces", split)

    def work() -> Counts:
        longest = 0
        with write_all_or_nothing(outputs) as [source, target]:
            rows = enumerate(zip(*map(read_lines, texts), strict=True), start=1)
            for number, row in tqdm(rows, desc=f"pieces/{split}", unit=" lines", disable=None):
                passage, question, answer = (cut(pieces(text)) for text in row)
                line = f"{question} {SEPARATOR} {passage}"
                longest = max(longest, len(line.split()) + 1)
                unknown = set(f"{question} {passage} {answer}".split()) - known
                if dictionary and unknown:
                    raise MemAttnError(
                        f"--dictionary {dictionary} lacks {min(unknown)!r}, which is in line "
                        f"{number} of {texts[0]}, or in its question or answer"
                    )
                source.write(line + "\n")
                target.write(answer + "\n")
        return {"tokens in the longest input, including </s>": longest}

    inputs = [*texts, *(path for path in (dictionary, bert_vocab) if path)]
    pipeline.stages.run(f"pieces-{split}", inputs, outputs, work)


@locks_output
def run(args: argparse.Namespace) -> None:
    check_least(args, "reuse", 0, 1)
    check_least(args, "largest", SMALLEST_LARGEST)
    check_least(args, "sentences", FEWEST_SENTENCES, MOST_SENTENCES)
    pretrained_subwords.check_bert_options(args)
    pipeline = Pipeline(args.output, ["input", "answer"], workers=args.workers, force=args.force)
    drawn = {"reuse": args.reuse, "largest": args.largest, "sentences": args.sentences}
    write_text(pipeline, split_sizes(args), args.seed, **drawn)
    for split in SPLITS:
        write_pieces(pipeline, split, args.dictionary, args.bert_vocab)
    pipeline.binarise(dictionary=args.dictionary)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_size_arguments(parser, 223067, 5146)
    of_reuse = (
        "probability that a template takes a word that the passage has used before, if one fits"
    )
    of_largest = "greatest number of people that somebody has or gains at once"
    numbers = {
        "--reuse": (float, 0.999, of_reuse),
        "--largest": (int, 9999, of_largest),
        "--sentences": (int, 5, "sentences in a passage, at most 30"),
    }
    add_numbers(parser, numbers)
    of_dictionary = (
        "dictionary of other examples, FOLDER/bin/dict.input.txt, for a model that reads both "
        "(default: made from train)"
    )
    add_options(parser, *COMMON, "--dictionary", dictionary={"help": of_dictionary})
    parser.add_argument("--bert-vocab", **pretrained_subwords.BERT_VOCAB)
    parser.set_defaults(cased=False, sentencepiece_model=None)
