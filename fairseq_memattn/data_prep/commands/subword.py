"""`memattn prepare subword`: train a SentencePiece model and segment text with it."""

import argparse
from pathlib import Path

from fairseq_memattn.data_prep.pipeline.outputs import refuse_overwriting
from fairseq_memattn.data_prep.text.subword import (
    add_max_sentence_length,
    add_model_type,
    add_normalization,
    encode,
    train,
)

DESCRIPTION = """\
Train a SentencePiece model and segment text with it, for fairseq-preprocess.

  %(prog)s train  --input corpus/train.en corpus/train.ru --model corpus/spm --vocab-size 4000
  %(prog)s encode --model corpus/spm.model --input corpus/*.en corpus/*.ru --output segmented

The separator between the sentences of a window remains one token. Lines that their pieces do not
give back, with fairseq's --post-process sentencepiece, are counted in a warning.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="train a model on one or several files")
    training.add_argument(
        "--input", nargs="+", type=Path, required=True, metavar="FILE", help="text files"
    )
    training.add_argument("--model", type=Path, required=True, help="prefix of the output")
    training.add_argument(
        "--vocab-size", type=int, default=8000, help="symbols of the model (default: %(default)s)"
    )
    add_model_type(training)
    add_normalization(training)
    add_max_sentence_length(training)
    training.add_argument(
        "--separator", default="_eos", help="a token that is not segmented (default: %(default)s)"
    )
    training.add_argument(
        "--seed", type=int, default=1, help="seed of SentencePiece (default: %(default)s)"
    )
    encoding = commands.add_parser("encode", help="segment files with a model")
    encoding.add_argument("--model", type=Path, required=True, help="the .model file")
    encoding.add_argument(
        "--input", nargs="+", type=Path, required=True, metavar="FILE", help="text files"
    )
    encoding.add_argument("--output", type=Path, required=True, help="folder for the results")


def run(args: argparse.Namespace) -> None:
    """Run the command line."""
    if args.command == "train":
        train(
            args.input,
            args.model,
            args.vocab_size,
            args.separator,
            args.seed,
            model_type=args.model_type,
            normalization=args.normalization,
            max_sentence_length=args.max_sentence_length,
        )
    else:
        targets = [args.output / path.name for path in args.input]
        refuse_overwriting([*args.input, args.model], targets)
        encode(args.model, args.input, args.output)
