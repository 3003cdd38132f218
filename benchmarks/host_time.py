"""What the host does in one forward and backward call of causal ABC on a GPU, without one.

    python benchmarks/host_time.py

Microseconds of processor time of one thread. Python, torch and Triton do what they do for a GPU,
but the launcher that gives a compiled kernel to the driver, and takes some microseconds, does
nothing. Beside it are an `autograd.Function` of four inputs that allocates its results and no more,
and `scaled_dot_product_attention` of one token, which it computes. Needs triton; the first run
compiles the kernels, for a minute.
"""

import cProfile
import pstats
import statistics
import warnings
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import add_round_options, make_parser, take_turns
from no_gpu import Launcher, stubbed_launches
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.attention import abc_attention, use_backend
from fairseq_memattn.evaluation.tables import table

Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class Bare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        return torch.empty_like(inputs[0])

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(x) for x in ctx.saved_tensors)


def softmax(q: Tensor, k: Tensor, v: Tensor, _: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def draw(tokens: int, heads: int, width: int, slots: int) -> list[Tensor]:
    """q, k, v and log_alpha in the layout of a projection."""
    sizes = (width, width, width, slots)
    drawn = (torch.randn(1, tokens, heads, size, dtype=torch.bfloat16) for size in sizes)
    return [x.transpose(1, 2).requires_grad_() for x in drawn]


def both(attend: Attention, inputs: list[Tensor], ones: Tensor) -> None:
    torch.autograd.grad(attend(*inputs), inputs, ones, allow_unused=True)


def forward(attend: Attention, inputs: list[Tensor], _: Tensor) -> None:
    attend(*inputs)


def many(call: Callable[[], object], count: int) -> None:
    for _ in range(count):
        call()


def print_functions(call: Callable[[], object], calls: int, longest: int) -> None:
    """Those of Python that take longest, with what the profiler itself takes."""
    profiler = cProfile.Profile()
    profiler.runcall(many, call, calls)
    rows = [["us of its own", "with what it calls", "calls", "function"]]
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    found = sorted(stats.items(), key=lambda item: -item[1][2])
    for (file, line, name), (_, times, own, total, _) in found[:longest]:
        shown = [f"{1e6 * value / calls:.1f}" for value in (own, total)]
        rows.append([*shown, f"{times / calls:.1f}", f"{Path(file).name}:{line}({name})"])
    print(table(rows))


def main() -> None:
    parser = make_parser(__doc__)
    add_round_options(parser, repeats=20, warmup=2)
    add = parser.add_argument
    add("--calls", type=int, default=50, help="calls of a round (%(default)s)")
    add("--tokens", type=int, default=16, help="(%(default)s)")
    add("--heads", type=int, default=1, help="(%(default)s)")
    add("--width", type=int, default=64, help="of a head (%(default)s)")
    add("--slots", type=int, default=64, help="(%(default)s)")
    add("--functions", type=int, metavar="N", help="the longest N functions of Python, too")
    args = parser.parse_args(namespace=Namespace(device="cpu", clock="cpu"))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of Triton
    inputs = draw(args.tokens, args.heads, args.width, args.slots)
    one_token = draw(1, 1, args.width, args.slots)
    ones = torch.ones_like(inputs[0])
    causal = partial(abc_attention, causal=True)
    attends: dict[str, Attention] = {"abc": causal, "bare": Bare.apply, "sdpa": softmax}
    runs = {}
    for name, attend in attends.items():
        given = inputs if attend is not softmax else one_token
        for kind in (forward, both):
            call = partial(kind, attend, given, torch.ones_like(given[0]))
            runs[name, kind.__name__] = partial(many, call, args.calls)
    with stubbed_launches(), use_backend("triton"):
        both(causal, inputs, ones)  # compiles
        before = Launcher.count
        both(causal, inputs, ones)
        launches = Launcher.count - before
        taken = take_turns(args, runs)
        us = {run: 1e6 * statistics.median(times) / args.calls for run, times in taken.items()}
        rows = [["host, us", "forward", "and backward"]]
        rows += [
            [name, *(f"{us[name, kind]:.0f}" for kind in ("forward", "both"))] for name in attends
        ]
        print(f"{launches} launches\n{table(rows)}")
        if args.functions:
            print_functions(partial(both, causal, inputs, ones), args.calls, args.functions)


if __name__ == "__main__":
    main()
