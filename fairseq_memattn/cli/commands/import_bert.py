"""`memattn import-bert`: converts a BERT saved by transformers to a `gmat_bert` and a dictionary.

The model has no memory, and the same outputs as BERT for up to 512 tokens. `memattn convert` adds a
memory. fairseq's commands read both models.
"""

import argparse
from pathlib import Path
from typing import Any

from fairseq_memattn.cli.shared import hf_checkpoint
from fairseq_memattn.cli.shared.hf_checkpoint import checkpoint, dictionary, read_model, write_model
from fairseq_memattn.cli.shared.outputs import say
from fairseq_memattn.errors import flag


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = (
        "--srcdict of fairseq-preprocess; the text must be segmented into the pieces of vocab.txt"
    )
    hf_checkpoint.add_arguments(parser, "BERT's vocab.txt", text)


def run(args: argparse.Namespace) -> None:
    from fairseq_memattn.models import hf_bert
    from fairseq_memattn.models.gmat_bert import GMATBert

    vocabulary_file = args.folder / "vocab.txt"
    config, model_options, saved = read_model(args, vocabulary_file, hf_bert)
    vocabulary = pieces(vocabulary_file)
    names, order = hf_bert.symbols(vocabulary, config["vocab_size"])
    weights, unread = hf_bert.weights(saved, order)
    train_flags = flags(model_options)
    symbols = dictionary([*names, "<mask>"])
    # fairseq's BERT initialisation needs real tensors, not those of the meta device.
    task_flags = ["--task", "masked_lm", "--criterion", "masked_lm_error", *train_flags]
    state = checkpoint(GMATBert, task_flags, weights, symbols, device="cpu")
    write_model(
        args,
        state,
        dictionary(names),
        "a masked language model",
        unread,
        copy="encoder.lm_head.weight",
    )
    print(f"dictionary of {len(symbols)} symbols, <mask> included: {args.dict}")
    if unnamed := config["vocab_size"] - len(vocabulary):
        say(
            f"warning: {unnamed} of the {config['vocab_size']} pieces have no line in vocab.txt; "
            "unless they are padding, vocab.txt belongs to another model or is incomplete"
        )
    print(f"to train it: --finetune-from-model {args.output} {' '.join(train_flags)}")


def flags(model_options: dict[str, Any]) -> list[str]:
    found = ["--arch", "gmat_bert", "--tokens-per-sample", "512"]
    for name, value in model_options.items():
        found += [flag(name), str(value)]
    return found


def pieces(path: Path) -> list[str]:
    """The lines of vocab.txt; `splitlines` would split at further characters, which are pieces."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
