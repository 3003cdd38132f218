"""Time and memory of a training step whose sequence is split over processes.

A step is a forward and a backward pass of layers x + ABCAttention(x) over one sequence, of which
each process has T / processes tokens. `peak_bytes` is the largest peak of a process's tensors
during a step, `seconds` the median over steps of the slowest process, and `exchanged_bytes` what a
process receives in a layer's forward pass. With --clock cpu, waiting for other processes does not
count.

The processes find each other on this machine, by gloo on a CPU and NCCL on GPUs, one for each.
"""

import json
import os
import socket
import subprocess
import sys
from argparse import Namespace
from statistics import median

import torch
from common import (
    MIB,
    add_common_options,
    add_round_options,
    make_panels,
    make_parser,
    parse,
    peak_bytes,
    seconds,
    start_report,
    write_report,
)
from torch import distributed

from fairseq_memattn.attention.nn import ABCAttention


def work_as_process(args: Namespace, rank: int, count: int) -> None:
    """Prints the measurements of one process."""
    on_gpu = args.device.startswith("cuda")
    if on_gpu:
        args.device = f"cuda:{rank}"
        torch.cuda.set_device(rank)
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(1)
    sizes = dict(slots=args.slots, causal=True, control=args.control)
    layers = [ABCAttention(args.width, args.heads, **sizes) for _ in range(args.layers)]
    for layer in layers:
        layer.to(args.device).split_context(distributed.group.WORLD)
    x = torch.randn(1, args.length // count, args.width, device=args.device)

    def step() -> None:
        y = x
        for layer in layers:
            y = y + layer(y)
        y.sum().backward()
        for layer in layers:
            layer.zero_grad()

    taken = [seconds(args, step) for _ in range(args.warmup + args.repeats)][args.warmup :]
    found = {"seconds": median(taken), "peak_bytes": peak_bytes(args, step)}
    distributed.destroy_process_group()
    print(json.dumps(found))


def measure(args: Namespace, count: int) -> dict[str, float]:
    """The measurements in `count` processes."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free.getsockname()[1])}
    env = {**os.environ, **address, "WORLD_SIZE": str(count)}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *sys.argv[1:]],
            env={**env, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    found = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    state = 2 * args.slots * args.width + args.slots * args.heads
    row = {name: max(one[name] for one in found) for name in found[0]}
    return {"processes": count, **row, "exchanged_bytes": 4 * state * (count - 1)}


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--processes", type=int, nargs="+", default=[1, 2, 4], help="(%(default)s)")
    add("--length", type=int, default=32768, help="T, of all parts together (%(default)s)")
    add("--layers", type=int, default=4, help="(%(default)s)")
    add("--width", type=int, default=256, help="E (%(default)s)")
    add("--heads", type=int, default=4, help="(%(default)s)")
    add("--slots", type=int, default=64, help="(%(default)s)")
    add("--control", default="mlp", help="(%(default)s)")
    add_round_options(parser, repeats=3, warmup=1)
    add_common_options(parser, "context_parallel")
    return parse(parser)


def main() -> None:
    args = parse_arguments()
    if "RANK" in os.environ:
        return work_as_process(args, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    report = start_report(args)
    report["rows"] = rows = []
    for count in args.processes:
        rows.append(row := measure(args, count))
        print(
            f"{count} processes: {row['seconds']:.3f} s a step, {row['peak_bytes'] / MIB:.1f} MiB, "
            f"{row['exchanged_bytes'] / MIB:.2f} MiB received in a layer",
            flush=True,
        )
    figure, panels = make_panels(2)
    for axes, name, unit in zip(panels, ("peak_bytes", "seconds"), (MIB, 1), strict=True):
        axes.plot(args.processes, [row[name] / unit for row in rows], marker="o")
        axes.set(xlabel="processes", ylabel="MiB" if unit == MIB else "s", ylim=(0, None))
    figure.savefig(args.out.with_suffix(".png"), dpi=120)
    write_report(report, args.out)


if __name__ == "__main__":
    main()
