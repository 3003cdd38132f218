"""Reads models saved by `transformers`, and converts them to fairseq checkpoints."""

import argparse
import pickle
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fairseq_memattn import files
from fairseq_memattn.cli.shared.models import check_finite
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, write_checkpoint
from fairseq_memattn.host.checkpoints import damaged_entry, forbidden_global

if TYPE_CHECKING:
    from torch import Tensor

FORMATS = ("model.safetensors", "pytorch_model.bin")


def add_arguments(parser: argparse.ArgumentParser, beside: str, text: str) -> None:
    """The arguments of an import. beside: a file of the folder; text: what --dict is for"""
    add = Options(parser)
    add(
        "folder",
        "folder of a model saved by transformers: config.json, model.safetensors or "
        f"pytorch_model.bin (or several files with an index), and {beside}",
        type=Path,
    )
    add.file("--output", "checkpoint to write", required=True)
    add.file("--dict", f"dictionary to write, for {text}", required=True)


def read_model(args: argparse.Namespace, pieces: Path, form: Any) -> tuple[Any, Any, Any]:
    """The configuration, the options of fairseq's model, and the weights, by transformers' names.

    pieces: the file of the vocabulary; form: the module that converts models of this kind
    """
    config_file, files = args.folder / "config.json", weight_files(args.folder)
    outputs = {"--output": args.output, "--dict": args.dict}
    check_outputs(outputs, [config_file, pieces, *files])
    from fairseq_memattn.models.hf_checks import check_sizes

    config = read_json(config_file)
    options, saved = form.options(config), read_weights(files)
    check_sizes(config, form.sizes(saved))
    return config, options, saved


def write_model(
    args: argparse.Namespace,
    state: dict[str, Any],
    symbols: Any,
    model: str,
    unread: list[str],
    copy: str,
) -> None:
    """Writes the checkpoint and the dictionary, and prints what was converted.

    unread: the weights that the model does not use
    copy: a weight that is not counted, as it has the values of another
    """
    write_checkpoint(state, args.output)
    with files.replacing(args.dict) as unfinished:
        symbols.save(str(unfinished))
    if unread:
        print(f"left out, as {model} does not use them: {', '.join(unread)}")
    count = sum(weight.numel() for name, weight in state["model"].items() if name != copy)
    print(f"imported {count} weights: {args.output}")


def weight_files(folder: Path) -> list[Path]:
    """The files of the weights in a folder."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder; models are downloaded before")
    for name in FORMATS:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            weight_map = read_json(index).get("weight_map")
            names = weight_map.values() if isinstance(weight_map, dict) else [weight_map]
            parts = sorted({str(name) for name in names})
            for part in parts:
                if Path(part).name != part:
                    raise ValueError(
                        f"{index} is refused: its files must be in the same folder, but one is "
                        f"{part}"
                    )
                if not (folder / part).is_file():
                    raise ValueError(
                        f"{folder / part}: there is no such file, but {index} lists it"
                    )
            return [folder / part for part in parts]
    raise ValueError(f"{folder}: has neither {' nor '.join(FORMATS)}")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ValueError for any other content."""
    content = files.read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path}: not a JSON object")
    return content


def read_weights(files: list[Path]) -> "dict[str, Tensor]":
    """The weights of all files, by transformers' names."""
    import torch
    from tqdm import tqdm

    saved: dict[str, Tensor] = {}
    for path in tqdm(files, desc="reading", unit="file", disable=None):
        load = load_safetensors if path.suffix == ".safetensors" else load_pickled
        try:
            saved |= load(path)
        except ImportError:
            raise
        except pickle.UnpicklingError as error:
            name = forbidden_global(str(error))
            reason = "its pickle holds an instruction that no weights have"
            if name is not None:
                reason = f"it contains `{name}`, which could run code; nothing of it was run"
            raise ValueError(f"{path}: cannot be read as weights ({reason})") from None
        except Exception as error:  # damaged files raise errors of many types
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            raise ValueError(f"{path}: cannot be read as weights ({reason})") from None
    for name, weight in saved.items():
        if not isinstance(weight, torch.Tensor):
            raise ValueError(f"the weights hold {name!r}, which is no tensor")
    check_finite(str(files[0].parent), saved)
    return saved


def load_safetensors(path: Path) -> "dict[str, Tensor]":
    from safetensors.torch import load_file

    weights: dict[str, Tensor] = load_file(path)
    return weights


def load_pickled(path: Path) -> "dict[str, Tensor]":
    import torch

    entry = damaged_entry(path)
    if entry is not None:
        raise zipfile.BadZipFile(f"the entry {entry} does not have its CRC-32")
    weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return weights


def dictionary(names: list[str]) -> Any:
    """A fairseq dictionary: its four special symbols, then `names`."""
    from fairseq.data import Dictionary

    symbols = Dictionary()
    for name in names:
        symbols.add_symbol(name)
    return symbols


def checkpoint(
    model: Any,
    flags: list[str],
    weights: "dict[str, Tensor]",
    dictionary: Any,
    target: Any = None,
    device: str = "meta",
) -> dict[str, Any]:
    """The checkpoint that fairseq-train would save with these flags before the first update.

    model: the class of the model; target: the target's dictionary, where it is another one
    device: on which the model is built to check the weights; "meta" if the class supports it
    """
    import torch
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    from fairseq_memattn.models.hf_checks import check_weights

    args = options.parse_args_and_arch(options.get_training_parser(), ["data", *flags])
    cfg = convert_namespace_to_omegaconf(args)
    task = SimpleNamespace(
        source_dictionary=dictionary,
        target_dictionary=target or dictionary,
        max_positions=lambda: getattr(args, "tokens_per_sample", None),
    )
    with torch.device(device):
        check_weights(weights, model.build_model(args, task))
    return untrained(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True), weights)


def untrained(cfg: Any, weights: "dict[str, Tensor]") -> dict[str, Any]:
    history = {
        "criterion_name": "",
        "optimizer_name": "",
        "lr_scheduler_state": {},
        "num_updates": 0,
    }
    return {
        "args": None,
        "cfg": cfg,
        "model": weights,
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
        "task_state": {},
    }
