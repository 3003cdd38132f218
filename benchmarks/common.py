"""What the benchmarks of whole models share: building them, and how busy the machine is."""

import json
import os
import platform
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from attention_training import processor
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

import fairseq_memattn

fairseq_memattn.register()

ARCHITECTURES = {"abc": "abc_mlp_transformer", "softmax": "transformer"}


def make_dictionary(size: int) -> Dictionary:
    """Words that mean nothing, after fairseq's special symbols."""
    dictionary = Dictionary()
    for number in range(size - len(dictionary)):
        dictionary.add_symbol(f"word{number}")
    return dictionary


def build_model(name: str, dictionary: Dictionary, **options: Any) -> torch.nn.Module:
    """A fairseq model with random weights. name: of `ARCHITECTURES`; options: fairseq's."""
    torch.manual_seed(0)
    arch = ARCHITECTURES[name]
    args = Namespace(**options)
    ARCH_CONFIG_REGISTRY[arch](args)
    task = Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)


def sizes(width: int, ffn: int, heads: int) -> dict[str, int]:
    """The same sizes for the encoder and the decoder, as fairseq's options."""
    values = {"embed_dim": width, "ffn_embed_dim": ffn, "attention_heads": heads}
    return {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in values.items()}


def machine() -> dict[str, Any]:
    """For the report; warns where other programs are likely to disturb the figures."""
    load, threads = os.getloadavg()[0], torch.get_num_threads()
    if load > 0.5:
        print(f"warning: the load average is {load:.2f} before the start; expect noise")
    return {
        "processor": processor("cpu"),
        "threads": threads,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load_average_before": load,
    }


def write_report(report: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(report, indent=2) + "\n")
    print(f"wrote {path}.json and .png")
