"""`memattn prepare binarise`: segmented text to fairseq's binary data."""

import argparse
import os
from pathlib import Path

from fairseq_memattn.data_prep.pipeline.arguments import COMMON, add_options
from fairseq_memattn.data_prep.pipeline.binarise import binarise
from fairseq_memattn.data_prep.pipeline.stages import LOCK, OTHER
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import locked

DESCRIPTION = """\
Binarise segmented text as fairseq-preprocess does, and keep its document ids.

  %(prog)s --text train=pieces/train valid=pieces/valid test=pieces/test --langs en es \\
              --output bin
      reads pieces/train.en, pieces/train.es, ...; if pieces/train.docid, pieces/valid.docid
      and pieces/test.docid exist, it also writes bin/train.en-es.docids, ..., with one document
      id a line, one line for each sentence pair

  %(prog)s --text train=pieces/train valid=pieces/valid --langs en --output bin
      one language: data for language modelling (bin/train.bin, bin/dict.txt)

Document ids are needed for all splits or for none, apart from train1, ...: without them, each of
its sentences is a document. The data is that of fairseq-preprocess byte for byte; fairseq is not
needed.
The output folder appears when everything is done. The same input is not binarised again.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    of_model = "SentencePiece model of the text, of which all pieces come into the dictionary"
    options = ("--text", "--langs", *COMMON, "--dictionary", "--sentencepiece-model")
    add_options(parser, *options, sentencepiece_model={"help": of_model})
    parser.add_argument(
        "--joined-dictionary",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="one dictionary for both languages (the default)",
    )


def run(args: argparse.Namespace) -> None:
    text = dict(args.text)
    if len(text) < len(args.text):
        raise MemAttnError("--text names a split twice")
    whole = Path(os.path.realpath(args.output))
    # Beside the folder, which is replaced.
    with locked(whole.with_name(f".{whole.name}{LOCK}"), f"{OTHER} {args.output}"):
        done = binarise(
            text,
            args.langs,
            args.output,
            joined_dictionary=args.joined_dictionary,
            dictionary=args.dictionary,
            model=args.sentencepiece_model,
            workers=args.workers,
            force=args.force,
        )
    print(f"{args.output} is ready" if done else f"{args.output} already holds this data")
