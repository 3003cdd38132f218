"""What the benchmarks of whole models share: building them, timing them, reporting."""

import argparse
import json
import logging
import os
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from attention_training import processor
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch import nn

import fairseq_memattn

fairseq_memattn.register()
logging.disable(logging.INFO)  # fairseq turns every library's remarks on

ARCHITECTURES = {"abc": "abc_mlp_transformer", "softmax": "transformer"}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
BUSY = 0.5


def add_common_options(parser: argparse.ArgumentParser, results: str) -> None:
    """results: the default name of the report."""
    add = parser.add_argument
    add("--layers", type=int, default=6, help="of the encoder and of the decoder (%(default)s)")
    add("--width", type=int, default=512, help="E (%(default)s)")
    add("--ffn", type=int, default=2048, help="width of the feed-forward layers (%(default)s)")
    add("--heads", type=int, default=8, help="H (%(default)s)")
    add("--cross-slots", type=int, default=32, help="--abc-cross-slots (%(default)s)")
    add("--causal-slots", type=int, default=8, help="--abc-causal-slots (%(default)s)")
    add("--threads", type=int, help="CPU threads (torch's default)")
    add(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="what to time with: the clock on the wall, or the processor time that this program "
        "used, which other programs disturb less and needs --threads 1 (%(default)s)",
    )
    add(
        "--out",
        type=Path,
        default=Path(__file__).parent / "results" / results,
        help="path of the report without its ending: .json and .png are added (%(default)s)",
    )


def parse(parser: argparse.ArgumentParser) -> Namespace:
    """Parses, and sets the number of threads."""
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.clock == "cpu" and torch.get_num_threads() > 1:
        parser.error("--clock cpu adds up the time of all threads: give --threads 1 with it")
    return args


def make_dictionary(size: int) -> Dictionary:
    """Words that mean nothing, after fairseq's special symbols."""
    dictionary = Dictionary()
    for number in range(size - len(dictionary)):
        dictionary.add_symbol(f"word{number}")
    return dictionary


def build_model(name: str, args: Namespace, dictionary: Dictionary, longest: int) -> nn.Module:
    """One of `ARCHITECTURES`, with random weights, for up to `longest` tokens on either side."""
    torch.manual_seed(0)
    options = Namespace(
        abc_cross_slots=args.cross_slots,
        abc_causal_slots=args.causal_slots,
        share_all_embeddings=True,
        # Beyond its maximum fairseq computes the table of positions anew at every step.
        max_source_positions=longest,
        max_target_positions=longest,
    )
    for side in ("encoder", "decoder"):
        setattr(options, f"{side}_layers", args.layers)
        setattr(options, f"{side}_embed_dim", args.width)
        setattr(options, f"{side}_ffn_embed_dim", args.ffn)
        setattr(options, f"{side}_attention_heads", args.heads)
    ARCH_CONFIG_REGISTRY[ARCHITECTURES[name]](options)
    task = Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    return ARCH_MODEL_REGISTRY[ARCHITECTURES[name]].build_model(options, task)


def seconds(clock: str, work: Callable[[], object]) -> float:
    """How long `work` takes."""
    start = CLOCKS[clock]()
    work()
    return CLOCKS[clock]() - start


def start_report(args: Namespace) -> dict[str, Any]:
    """The machine and the setting. Warns where other programs will disturb the figures."""
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"warning: the load average is {load:.2f} before the start: expect noisy figures")
    setting = {name: value for name, value in vars(args).items() if name != "out"}
    report = {
        "processor": processor("cpu"),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "load_average_before": load,
        "setting": setting,
    }
    print("{processor}, {threads} threads, torch {torch}".format(**report), flush=True)
    return report


def write_report(report: dict[str, Any], path: Path) -> None:
    report["load_average_after"] = os.getloadavg()[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(report, indent=2) + "\n")
    print(f"writing {path}.json and .png")
