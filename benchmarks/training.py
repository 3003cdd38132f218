"""The measurement of the training benchmarks: forward and backward passes of attention."""

import argparse
import statistics
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import (
    MIB,
    add_common_options,
    add_round_options,
    make_panels,
    over_lengths,
    start_report,
    take_turns,
    write_report,
)
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

Contender = Callable[..., Tensor]
Contenders = dict[str, Contender]
Row = dict[str, Any]
# From the length and the median seconds by contender to ratios by name.
Ratios = Callable[[int, dict[str, float]], dict[str, float]]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, *unused: Tensor) -> Tensor:
    """Causal softmax attention. unused: inputs of other contenders"""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def softmax_operations(length: int, width: int) -> int:
    """Floating-point operations in matrix products per head and token, forward and backward.

    A multiplication with addition counts as two operations, and a product over a causal half as
    half a product. The forward pass has 2 products over T/2 tokens, and the backward pass has 5,
    because the logits are recomputed.
    """
    return 7 * length * width


def make_inputs(args: Namespace, length: int, *widths: int) -> list[Tensor]:
    """q, k, v (B, H, T, D), and a tensor (B, H, T, width) for each of `widths`."""
    torch.manual_seed(0)
    options = {"device": args.device, "dtype": DTYPES[args.dtype], "requires_grad": True}
    shape = (args.batch, args.heads, length)
    return [torch.randn(*shape, width, **options) for width in [args.head_size] * 3 + list(widths)]


def train_once(contender: Contender, inputs: list[Tensor], of_sum: bool) -> None:
    if of_sum:
        contender(*inputs).sum().backward()
        return
    for tensor in inputs:
        tensor.grad = None
    out = contender(*inputs)
    out.backward(torch.ones_like(out))


def saved_bytes(contender: Contender, inputs: list[Tensor]) -> int:
    """The bytes of the distinct storages that autograd saves for the backward pass.

    The storages of the inputs are included.
    """
    storages = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = contender(*inputs)
    total = sum(storage.nbytes() for storage in storages.values())
    del out
    return total


def measure(args: Namespace, length: int, contenders: Contenders, inputs: list[Tensor]) -> Row:
    work = {name: partial(train_once, run, inputs, args.sum) for name, run in contenders.items()}
    saved = {name: saved_bytes(run, inputs) for name, run in contenders.items()}
    taken = take_turns(args, work)
    return {
        "length": length,
        "median_seconds": {name: statistics.median(times) for name, times in taken.items()},
        "fastest_seconds": {name: min(times) for name, times in taken.items()},
        "slowest_seconds": {name: max(times) for name, times in taken.items()},
        "saved_bytes": saved,
    }


def describe(row: Row) -> str:
    times = "  ".join(f"{name} {1e3 * t:9.2f} ms" for name, t in row["median_seconds"].items())
    memory = "  ".join(f"{name} {b / MIB:7.1f} MiB" for name, b in row["saved_bytes"].items())
    ratios = "  ".join(f"{name} {ratio:6.2f}" for name, ratio in row["ratios"].items())
    return f"{row['length']:>6}  {times}  |  {ratios}  |  saved: {memory}"


def run(
    args: Namespace, contenders: Contenders, ratios: Ratios, widths: tuple[int, ...] = ()
) -> None:
    """Measures all lengths, and writes the report and the plot."""
    report = start_report(args)
    report["rows"] = []
    for length in args.lengths:
        row = measure(args, length, contenders, make_inputs(args, length, *widths))
        row["ratios"] = ratios(length, row["median_seconds"])
        report["rows"].append(row)
        print(describe(row), flush=True)
    write_report(report, args.out)
    plot(report, args.out.with_suffix(".png"))


def plot(report: dict[str, Any], path: Path) -> None:
    """Plots time and ratios against length. The dotted line is the ratio of operations."""
    rows = report["rows"]
    lengths = [row["length"] for row in rows]
    figure, (times, ratios) = make_panels(2)
    for name in rows[0]["median_seconds"]:
        milliseconds = [1e3 * row["median_seconds"][name] for row in rows]
        times.plot(lengths, milliseconds, marker="o", label=name)
    for name in rows[0]["ratios"]:
        style = "k:" if name.endswith("allowed") else "o-"
        label = name.replace("_", " ")
        ratios.plot(lengths, [row["ratios"][name] for row in rows], style, label=label)
    ratios.axhline(1, color="grey", linewidth=0.8)
    ratios.set_yscale("log", base=2)
    ratios.yaxis.set_major_formatter("{x:g}")
    over_lengths(times, lengths, yscale="log", ylabel="ms", title="forward + backward")
    over_lengths(ratios, lengths, title="how many times faster")
    setting = "B={batch} H={heads} D={head_size} M={slots} {dtype}".format(**report["setting"])
    figure.suptitle(f"{setting}, {report['processor']}, {report['threads']} threads")
    figure.savefig(path, dpi=120)


def add_options(
    parser: argparse.ArgumentParser, results: str, lengths: list[int], slots: int
) -> None:
    """results, lengths, slots: the defaults of options"""
    add = parser.add_argument
    add("--lengths", type=int, nargs="+", default=lengths, help="T (%(default)s)")
    add("--batch", type=int, default=1, help="B (%(default)s)")
    add("--heads", type=int, default=8, help="H (%(default)s)")
    add("--head-size", type=int, default=64, help="D (%(default)s)")
    add("--slots", type=int, default=slots, help="M, memory slots (%(default)s)")
    add("--dtype", choices=DTYPES, default="float32", help="of the inputs (%(default)s)")
    help = "differentiate the sum of the output, an expanded gradient, and accumulate gradients"
    add("--sum", action="store_true", help=help)
    add_round_options(parser, repeats=7, warmup=2)
    add_common_options(parser, results)
