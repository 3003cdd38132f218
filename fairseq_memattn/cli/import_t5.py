"""`memattn import-t5`: a T5 that transformers has saved, as a checkpoint and a dictionary.

Both are what fairseq's commands take: `fairseq-preprocess --srcdict`, `fairseq-generate --path`,
`fairseq-train --finetune-from-model`.
"""

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fairseq_memattn.cli.outputs import check_outputs

if TYPE_CHECKING:
    from torch import Tensor

FORMATS = ("model.safetensors", "pytorch_model.bin")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        type=Path,
        help="as transformers saves it: config.json, model.safetensors or pytorch_model.bin (or "
        "several with an index), and T5's spiece.model",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="checkpoint to write"
    )
    parser.add_argument(
        "--dict",
        type=Path,
        required=True,
        metavar="FILE",
        help="dictionary to write, for fairseq-preprocess's --srcdict and --tgtdict",
    )
    parser.add_argument(
        "--sentencepiece-model",
        type=Path,
        metavar="FILE",
        help="the model's SentencePiece model (default: the folder's spiece.model)",
    )
    parser.add_argument(
        "--extra-ids",
        type=int,
        default=100,
        metavar="N",
        help="how many <extra_id_N> the vocabulary has after the pieces (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    config_file = args.folder / "config.json"
    pieces_file = args.sentencepiece_model or args.folder / "spiece.model"
    if not config_file.is_file():
        raise ValueError(f"{config_file}: there is no such file")
    if not pieces_file.is_file():
        raise ValueError(
            f"{pieces_file}: there is no such file; the vocabulary is made from the model's "
            "SentencePiece model, --sentencepiece-model"
        )
    files = weight_files(args.folder)
    inputs = [config_file, pieces_file, *files]
    check_outputs({"--output": args.output, "--dict": args.dict}, inputs)
    import fairseq_memattn

    fairseq_memattn.register()
    from fairseq_memattn.cli.average import write
    from fairseq_memattn.models import t5_import

    config = read_json(config_file)
    model_options = t5_import.options(config)
    names = t5_import.symbols(pieces(pieces_file), args.extra_ids, config["vocab_size"])
    weights, unread = t5_import.weights(read_weights(files))
    state = checkpoint(model_options, weights, dictionary(names))
    write(state, args.output)
    dictionary(names).save(str(args.dict))
    report(args, model_options, weights, unread)


def report(
    args: argparse.Namespace,
    model_options: dict[str, Any],
    weights: "dict[str, Tensor]",
    unread: list[str],
) -> None:
    count = sum(w.numel() for name, w in weights.items() if name != "decoder.embed_tokens.weight")
    if unread:
        print(f"left out, as no T5 reads it: {', '.join(unread)}")
    print(f"imported {count} weights: {args.output}")
    print(f"dictionary of {len(weights['encoder.embed_tokens.weight'])} symbols: {args.dict}")
    print(f"to train it: --finetune-from-model {args.output} {flags(model_options)}")


def flags(model_options: dict[str, Any]) -> str:
    """What fairseq-train is to be told of a model, where it is not the architecture's default."""
    from fairseq_memattn.models.t5_config import T5Config, flag

    default = T5Config()
    told = [
        flag(name) if value is True else f"{flag(name)} {value}"
        for name, value in model_options.items()
        if value != getattr(default, name)
    ]
    return " ".join(["--arch t5", *told])


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights.

    Raises ValueError where there are none.
    """
    for name in FORMATS:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            parts = sorted(set(read_json(index).get("weight_map", {}).values()))
            for part in parts:
                if not (folder / part).is_file():
                    raise ValueError(f"{folder / part}: there is no such file, but {index} has it")
            return [folder / part for part in parts]
    raise ValueError(f"{folder}: has neither {' nor '.join(FORMATS)}")


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: no JSON ({error})") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: no JSON object")
    return content


def read_weights(files: list[Path]) -> "dict[str, Tensor]":
    """The weights of all files, by transformers' names.

    Raises ImportError where a format needs a package that is missing, and ValueError for a file
    that cannot be read.
    """
    from tqdm import tqdm

    saved: dict[str, Tensor] = {}
    for path in tqdm(files, desc="reading", unit="file", disable=None):
        load = load_safetensors if path.suffix == ".safetensors" else load_pickled
        try:
            saved |= load(path)
        except ImportError:
            raise
        except Exception as error:  # a damaged file can raise nearly anything
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            raise ValueError(f"{path}: cannot be read as weights ({reason})") from None
    return saved


def load_safetensors(path: Path) -> "dict[str, Tensor]":
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise ImportError(
            f"{path} needs the package safetensors, which is missing: pip install safetensors"
        ) from None
    weights: dict[str, Tensor] = load_file(path)
    return weights


def load_pickled(path: Path) -> "dict[str, Tensor]":
    import torch

    weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return weights


def pieces(path: Path) -> list[str]:
    """The pieces of T5's SentencePiece model.

    Raises ValueError for a file that is none, and for one whose special pieces are not T5's.
    """
    import sentencepiece

    try:
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except RuntimeError:
        raise ValueError(f"{path}: not a SentencePiece model") from None
    special = (model.pad_id(), model.eos_id(), model.unk_id())
    if special != (0, 1, 2):
        raise ValueError(
            f"{path}: padding, end of sentence and unknown must be the pieces 0, 1 and 2, as T5 "
            f"has them, but are {', '.join(map(str, special))}"
        )
    return [model.id_to_piece(number) for number in range(len(model))]


def dictionary(names: list[str]) -> Any:
    """fairseq's dictionary with these symbols after its four."""
    from fairseq.data import Dictionary

    made = Dictionary()
    for name in names:
        made.add_symbol(name)
    return made


def checkpoint(
    model_options: dict[str, Any], weights: "dict[str, Tensor]", dictionary: Any
) -> dict[str, Any]:
    """What fairseq-train would have saved: for the task translation, after no update.

    Raises MemAttnError for weights that are not those of the model with these options.
    """
    import torch
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    from fairseq_memattn.models.t5 import T5
    from fairseq_memattn.models.t5_import import check_weights

    argv = ["data", "--task", "translation", *flags(model_options).split()]
    args = options.parse_args_and_arch(options.get_training_parser(), argv)
    cfg = convert_namespace_to_omegaconf(args)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    with torch.device("meta"):
        check_weights(weights, T5.build_model(args, task))
    history = {
        "criterion_name": "",
        "optimizer_name": "",
        "lr_scheduler_state": {},
        "num_updates": 0,
    }
    return {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": weights,
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
        "task_state": {},
    }
