"""The `memattn` command. A subcommand is one module with `add_arguments` and `run`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from fairseq_memattn.compat import INSTALL

# Name of the module in this package (with `_` for `-`) -> its line in `memattn --help`. Only the
# module of the given command is imported, so that help and usage errors do not import torch.
COMMANDS = {
    "answers": "exact match and F1 of answers to questions, as HotpotQA and SQuAD define them",
    "average": "average the weights of several checkpoints into one",
    "compress": "store each document as a few vectors with a GMAT with compression",
    "contrast": "accuracy on contrastive sets of right and wrong translations in context",
    "convert": "start another attention from a trained model's weights",
    "cxmi": "how much a model uses its context: conditional cross-mutual information",
    "decompress": "the encoder's output for the documents of a store, or its predicted tokens",
    "import-bert": "convert a BERT saved by transformers to a gmat_bert and a dictionary",
    "import-t5": "convert a T5 saved by transformers to a checkpoint and a dictionary",
    "perplexity": "perplexity of a language model with context or memory across blocks",
    "plot": "draw what a text writes into a model's memory and what is read from it",
    "prepare": "prepare corpora for fairseq: official archives, generated corpora or your own text",
    "score": "BLEU by sentence and by document, chrF, COMET, with bootstrap tests",
    "spans": "find answers in contexts with a model of --task span_answering, and score them",
}

# The commands that load trained models, and so take --user-dir for controls outside the package.
WITH_MODELS = (
    "compress",
    "contrast",
    "convert",
    "cxmi",
    "decompress",
    "perplexity",
    "plot",
    "spans",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand. The exit status is 0, 1 after a printed error, or 2 for wrong usage."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="memattn", description="Tools around fairseq_memattn's models and data."
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name in argv[:1]:
            command = _load(name)
            command.add_arguments(subparser)
            if name in WITH_MODELS:
                subparser.add_argument(
                    "--user-dir",
                    metavar="DIR",
                    help="a folder with controls or models of your own, as fairseq's commands "
                    "take it; this plugin's are known without it",
                )
    args = parser.parse_args(argv)
    try:
        if getattr(args, "user_dir", None):
            _import_user_dir(args)
        command.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe: the rest of the output is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ImportError, OSError, ValueError) as error:
        # Errors in files, options, data or the installation, which a user can correct.
        print(f"memattn {args.command}: error: {error}", file=sys.stderr)
        return 1
    return 0


def _import_user_dir(args: argparse.Namespace) -> None:
    """Registers the controls and models of --user-dir. Raises FileNotFoundError without one."""
    import fairseq_memattn

    fairseq_memattn.register()
    from fairseq.utils import import_user_module

    if not os.path.isdir(args.user_dir):
        raise FileNotFoundError(f"--user-dir {args.user_dir} is not a folder")
    import_user_module(args)


def _load(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    except ImportError as error:
        raise SystemExit(f"memattn {name}: error: {error}; {INSTALL}") from None
