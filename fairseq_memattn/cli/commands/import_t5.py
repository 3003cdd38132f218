"""`memattn import-t5`: converts a T5 saved by transformers to a checkpoint and a dictionary.

fairseq's commands read both: `fairseq-preprocess --srcdict`, `fairseq-generate --path` and
`fairseq-train --finetune-from-model`.
"""

import argparse
from pathlib import Path
from typing import Any

from fairseq_memattn.cli.shared import hf_checkpoint
from fairseq_memattn.cli.shared.hf_checkpoint import checkpoint, dictionary, read_model, write_model
from fairseq_memattn.cli.shared.inputs import require_file
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.errors import flag


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "--srcdict and --tgtdict of fairseq-preprocess"
    hf_checkpoint.add_arguments(parser, "T5's spiece.model", text)
    add = Options(parser)
    add.file("--sentencepiece-model", "SentencePiece model (default: spiece.model in the folder)")
    add.number(
        "--extra-ids",
        "number of symbols <extra_id_N> after the pieces in the vocabulary (default: %(default)s)",
        default=100,
    )


def run(args: argparse.Namespace) -> None:
    pieces_file = args.sentencepiece_model or args.folder / "spiece.model"
    require_file("--sentencepiece-model", pieces_file)
    from fairseq_memattn.models import hf_t5
    from fairseq_memattn.models.t5 import T5

    config, model_options, saved = read_model(args, pieces_file, hf_t5)
    symbols = dictionary(hf_t5.symbols(pieces(pieces_file), args.extra_ids, config["vocab_size"]))
    weights, unread = hf_t5.weights(saved)
    train_flags = flags(model_options)
    state = checkpoint(T5, ["--task", "translation", *train_flags.split()], weights, symbols)
    write_model(args, state, symbols, "T5", unread, copy="decoder.embed_tokens.weight")
    print(f"dictionary of {len(symbols)} symbols: {args.dict}")
    print(f"to train it: --finetune-from-model {args.output} {train_flags}")


def flags(model_options: dict[str, Any]) -> str:
    """The flags of fairseq-train for the model whose values differ from the defaults."""
    from fairseq_memattn.models.t5 import T5Config

    default = T5Config()
    found = [
        flag(name) if value is True else f"{flag(name)} {value}"
        for name, value in model_options.items()
        if value != getattr(default, name)
    ]
    return " ".join(["--arch t5", *found])


def pieces(path: Path) -> list[str]:
    """The pieces of T5's SentencePiece model."""
    import sentencepiece

    try:
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except RuntimeError:
        raise ValueError(f"{path}: not a SentencePiece model") from None
    special = (model.pad_id(), model.eos_id(), model.unk_id())
    if special != (0, 1, 2):
        raise ValueError(
            f"{path}: padding, end of sentence and unknown must be the pieces 0, 1 and 2, as in "
            f"T5, but are {', '.join(map(str, special))}"
        )
    return [model.id_to_piece(number) for number in range(len(model))]
