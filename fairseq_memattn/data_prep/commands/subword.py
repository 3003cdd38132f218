"""`memattn prepare subword`: train a SentencePiece model and segment text with it."""

import argparse
from pathlib import Path

from fairseq_memattn.data_prep.pipeline.arguments import SENTENCEPIECE, add_options
from fairseq_memattn.data_prep.pipeline.stages import refuse_overwriting
from fairseq_memattn.data_prep.pipeline.text_to_binary import copy_file
from fairseq_memattn.data_prep.text.subword import Training, encode, train

DESCRIPTION = """\
Train a SentencePiece model and segment text with it, for fairseq-preprocess.

  %(prog)s train  --input corpus/train.en corpus/train.ru --model corpus/spm --vocab-size 4000
  %(prog)s encode --model corpus/spm.model --input corpus/*.en corpus/*.ru --output segmented

Document ids beside the text, corpus/train.docid, are copied to segmented/train.docid, where
`memattn prepare binarise` reads them. The separator between the sentences of a window remains one
token. Lines that their pieces do not give back, with fairseq's --post-process sentencepiece, are
counted in a warning.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="train a model on one or several files")
    encoding = commands.add_parser("encode", help="segment files with a model")
    for command, model in ((training, "prefix of the output"), (encoding, "the .model file")):
        command.add_argument(
            "--input", nargs="+", type=Path, required=True, metavar="FILE", help="text files"
        )
        command.add_argument("--model", type=Path, required=True, help=model)
    add_options(training, "--vocab-size", *SENTENCEPIECE, "--seed")
    add_options(encoding, "--output")


def run(args: argparse.Namespace) -> None:
    if args.command == "train":
        train(args.input, args.model, Training.of(args))
    else:
        beside = dict.fromkeys(path.with_suffix(".docid") for path in args.input)
        ids = [path for path in beside if path.is_file()]
        targets = [args.output / path.name for path in [*args.input, *ids]]
        refuse_overwriting([*args.input, *ids, args.model], targets)
        encode(args.model, args.input, args.output)
        for path in ids:
            copy_file(path, args.output / path.name)
