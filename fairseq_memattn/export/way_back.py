"""What an exported folder keeps for the way back to fairseq: fairseq.json.

It has the configuration of the model and the task, the dictionaries, the name in model.safetensors
of each weight of fairseq, and the values of fairseq's small buffers that transformers do not have.
"""

import argparse
import copy
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf
from torch import Tensor, nn
from transformers import PreTrainedModel

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export.converters import converted
from fairseq_memattn.transformers.tokenizer import FILES
from fairseq_memattn.transformers.vocabulary import Vocabulary

FILE = "fairseq.json"
SMALL = 16  # values; a larger buffer is a weight
# Paths and settings of the machine, which do not belong to the model, and low-rank updates, which
# the exported weights contain.
LEFT_OUT = {
    *("user_dir", "save_dir", "restore_file", "finetune_from_model", "tensorboard_logdir"),
    *("wandb_project", "log_file", "plasma_path", "abc_low_rank"),
}


def record(
    state: Mapping[str, Any], model: nn.Module, task: Any, data: Path, saved: Iterable[str]
) -> dict[str, Any]:
    """The content of fairseq.json.

    state: the checkpoint; saved: the names in model.safetensors
    """
    names, constants, lost = weight_names(model, task, set(saved))
    options = state["cfg"]["model"]
    return {
        "cfg": {"model": _values(options), "task": _values(state["cfg"]["task"])},
        "model_is_namespace": isinstance(options, argparse.Namespace),
        "dictionaries": dictionaries(task, data),
        "names": names,
        "constants": constants,
        "lost": lost,
    }


def weight_names(
    model: nn.Module, task: Any, saved: set[str]
) -> tuple[dict[str, str], dict[str, Any], list[str]]:
    """The names of fairseq's weights in `saved`, the values of small buffers, and other weights.

    A copy of the model with random weights is converted, and each of them found again. A weight
    that a converter does not copy as it is belongs to the others.
    """
    probe = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in (*probe.parameters(), *probe.buffers()):
            if _is_kept(weight) and weight.is_floating_point():
                weight.copy_(torch.randn(weight.shape, generator=generator))
    ours: PreTrainedModel = converted(probe, task)
    found = {_key(w): name for name, w in ours.state_dict().items() if name in saved}
    names, constants, lost = {}, {}, []
    # keep_vars: parameters stay parameters, which small buffers are not.
    for name, weight in probe.state_dict(keep_vars=True).items():
        if not _is_kept(weight):
            value = model.state_dict()[name]
            constants[name] = {"dtype": str(value.dtype).partition(".")[2], "value": value.tolist()}
        elif _key(weight) in found:
            names[name] = found[_key(weight)]
        else:
            lost.append(name)
    return names, constants, lost


def _is_kept(weight: Tensor) -> bool:
    """Whether transformers' model has it: parameters of any size, and large buffers."""
    return isinstance(weight, nn.Parameter) or weight.numel() > SMALL


def _key(weight: Tensor) -> tuple[tuple[int, ...], bytes]:
    content = weight.detach().contiguous().cpu().numpy().tobytes()
    return tuple(weight.shape), hashlib.blake2b(content).digest()


def dictionaries(task: Any, data: Path) -> dict[str, dict[str, Any]]:
    """The dictionaries in a folder of data: whose symbols begin with them, and their number."""
    sides = {"source": task.source_dictionary, "target": task.target_dictionary}
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(data.rglob("dict*.txt")):
        symbols = Vocabulary.load(path).symbols
        for side, dictionary in sides.items():
            if dictionary is not None and dictionary.symbols[: len(symbols)] == symbols:
                name = path.relative_to(data).as_posix()
                found.setdefault(name, {"side": side, "symbols": len(symbols)})
    return found


def _values(options: Any) -> dict[str, Any]:
    """The options by name, as JSON has them, without paths."""
    if OmegaConf.is_config(options):
        options = OmegaConf.to_container(options, resolve=True, enum_to_str=True)
    values = vars(options) if isinstance(options, argparse.Namespace) else options
    kept = {name: _plain(value) for name, value in values.items() if name not in LEFT_OUT}
    return kept | ({"data": ""} if "data" in kept else {})


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return str(getattr(value, "value", value))


def restored(content: Mapping[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """fairseq's weights. Raises KeyError for one that the folder lacks."""
    model = {name: weights[theirs].clone() for name, theirs in content["names"].items()}
    for name, constant in content["constants"].items():
        model[name] = torch.tensor(constant["value"], dtype=getattr(torch, constant["dtype"]))
    return model


def options_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a checkpoint, with fairseq's defaults for the training."""
    cfg: Any = OmegaConf.to_container(
        OmegaConf.structured(FairseqConfig), resolve=True, enum_to_str=True
    )
    options = content["cfg"]["model"]
    cfg["model"] = argparse.Namespace(**options) if content["model_is_namespace"] else options
    cfg["task"] = content["cfg"]["task"]
    return dict(cfg)


def check_embeddings(weights: Mapping[str, Tensor], folder: Path) -> None:
    """Raises MemAttnError for embeddings of another number of symbols than their dictionary has.

    weights: fairseq's; folder: has the dictionaries
    """
    for name, weight in weights.items():
        if not name.endswith("embed_tokens.weight"):
            continue
        path = _vocabulary_file(folder, "target" if name.startswith("decoder.") else "source")
        symbols = len(Vocabulary.load(path))
        if len(weight) != symbols:
            raise MemAttnError(
                f"{folder}: the weight `{name}` has embeddings of {len(weight)} symbols, but the "
                f"dictionary {path.name} has {symbols}; fairseq needs one embedding for each symbol"
            )


def _vocabulary_file(folder: Path, side: str) -> Path:
    """The dictionary of a side, which is the source's where the target has none of its own."""
    target = folder / FILES["tgt_vocab_file"]
    separate = side == "target" and target.is_file()
    return target if separate else folder / FILES["src_vocab_file"]


def write_dictionaries(content: Mapping[str, Any], folder: Path, output: Path) -> None:
    """Writes the dictionaries of a folder, without the symbols that the task adds."""
    for name, entry in content["dictionaries"].items():
        whole = Vocabulary.load(_vocabulary_file(folder, entry["side"]))
        count = entry["symbols"]
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Vocabulary(whole.symbols[:count], whole.counts[:count]).save(path)
