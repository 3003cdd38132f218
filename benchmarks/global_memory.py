"""Time and memory of training with GMAT's chunks and global memory, against the number of chunks.

The contenders compute attention of the same q, k, v (B, H, S, D) and the same memory of M tokens
(B, H, M, D):

    chunks   fairseq_memattn.attention.global_memory_attention, in chunks of C
    masked   the same function: torch.nn.functional.scaled_dot_product_attention over all M + S
             tokens, with a mask that hides other chunks

The time is that of one forward and one backward pass, as the median over rounds in which the
contenders take turns. The memory is the peak on top of the inputs, outputs and gradients included.
The report also has the time and memory of `chunks` per chunk, which are constant if the cost is
linear in the length.

The number of pairs of queries and keys gives the largest possible ratio masked / chunks, if a pair
has the same cost in both: (M + S)^2 over S (C + M) + M (S + M).
"""

import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import (
    MIB,
    add_common_options,
    add_round_options,
    make_panels,
    make_parser,
    over_lengths,
    parse,
    peak_bytes,
    start_report,
    take_turns,
    write_report,
)
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.attention import global_memory_attention

# From q, k, v of the tokens and of the memory to the outputs of both, (B, H, M + S, D).
Contender = Callable[..., Tensor]
Row = dict[str, Any]


def attend_in_chunks(chunk: int, *inputs: Tensor) -> Tensor:
    out, memory = global_memory_attention(*inputs, chunk_size=chunk)
    return torch.cat([memory, out], dim=2)


def attend_with_mask(
    mask: Tensor, q: Tensor, k: Tensor, v: Tensor, q_mem: Tensor, k_mem: Tensor, v_mem: Tensor
) -> Tensor:
    """mask: (M + S, M + S), True where a query attends to a key"""
    q, k, v = (torch.cat(pair, dim=2) for pair in ((q_mem, q), (k_mem, k), (v_mem, v)))
    return scaled_dot_product_attention(q, k, v, attn_mask=mask)


def make_mask(slots: int, chunk: int, length: int, device: str) -> Tensor:
    number = torch.arange(length, device=device) // chunk
    mask = torch.ones(slots + length, slots + length, dtype=torch.bool, device=device)
    mask[slots:, slots:] = number.unsqueeze(1) == number
    return mask


def make_contenders(args: Namespace, length: int) -> Iterator[tuple[str, Contender]]:
    yield "chunks", partial(attend_in_chunks, args.chunk_size)
    if length <= args.masked_up_to:
        mask = make_mask(args.slots, args.chunk_size, length, args.device)
        yield "masked", partial(attend_with_mask, mask)


def make_inputs(args: Namespace, length: int) -> list[Tensor]:
    """q, k, v of the tokens, followed by those of the memory."""
    torch.manual_seed(0)
    lengths = [length] * 3 + [args.slots] * 3
    shapes = [(args.batch, args.heads, each, args.head_size) for each in lengths]
    return [torch.randn(shape, device=args.device, requires_grad=True) for shape in shapes]


def train_once(contender: Contender, inputs: list[Tensor]) -> None:
    for tensor in inputs:
        tensor.grad = None
    out = contender(*inputs)
    out.backward(torch.ones_like(out))


def pairs_ratio(args: Namespace, length: int) -> float:
    """The ratio of pairs as defined at the top of this file."""
    chunk, slots = min(args.chunk_size, length), args.slots
    return (slots + length) ** 2 / (length * (chunk + slots) + slots * (length + slots))


def measure(args: Namespace, chunks: int) -> Row:
    length = chunks * args.chunk_size
    inputs = make_inputs(args, length)
    work = {
        name: partial(train_once, contender, inputs)
        for name, contender in make_contenders(args, length)
    }
    peaks = {name: peak_bytes(args, run) for name, run in work.items()}
    taken = take_turns(args, work)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    row: Row = {
        "chunks": chunks,
        "length": length,
        "median_seconds": medians,
        "fastest_seconds": {name: min(times) for name, times in taken.items()},
        "slowest_seconds": {name: max(times) for name, times in taken.items()},
        "peak_bytes": peaks,
        "seconds_a_chunk": medians["chunks"] / chunks,
        "bytes_a_chunk": peaks["chunks"] / chunks,
    }
    if "masked" in medians:
        row["masked_over_chunks"] = medians["masked"] / medians["chunks"]
        row["masked_over_chunks_allowed"] = pairs_ratio(args, length)
    return row


def describe(row: Row) -> str:
    times = "  ".join(f"{name} {1e3 * t:9.2f} ms" for name, t in row["median_seconds"].items())
    peaks = "  ".join(f"{name} {b / MIB:7.1f} MiB" for name, b in row["peak_bytes"].items())
    a_chunk = f"{1e3 * row['seconds_a_chunk']:.2f} ms, {row['bytes_a_chunk'] / MIB:.1f} MiB"
    ratio = ""
    if "masked_over_chunks" in row:
        ratio = "  |  {masked_over_chunks:.2f} of {masked_over_chunks_allowed:.2f}".format(**row)
    return f"{row['length']:>6}  {times}  |  peak: {peaks}  |  a chunk: {a_chunk}{ratio}"


def check_agreement(args: Namespace) -> None:
    """Raises AssertionError unless the contenders compute the same function."""
    length = 3 * args.chunk_size
    inputs = [x.detach() for x in make_inputs(args, length)]
    mask = make_mask(args.slots, args.chunk_size, length, args.device)
    torch.testing.assert_close(
        attend_in_chunks(args.chunk_size, *inputs),
        attend_with_mask(mask, *inputs),
        rtol=1e-3,
        atol=1e-4,
    )


def plot(report: dict[str, Any], path: Path) -> None:
    """Time and peak memory against length."""
    rows = report["rows"]
    lengths = [row["length"] for row in rows]
    figure, (times, memory) = make_panels(2)
    for axes, key, unit in ((times, "median_seconds", 1e-3), (memory, "peak_bytes", MIB)):
        for name in ("chunks", "masked"):
            here = [row for row in rows if name in row[key]]
            values = [row[key][name] / unit for row in here]
            axes.plot([row["length"] for row in here], values, marker="o", label=name)
    over_lengths(times, lengths, yscale="log", ylabel="ms", title="forward + backward")
    over_lengths(memory, lengths, yscale="log", ylabel="MiB", title="peak memory")
    setting = "B={batch} H={heads} D={head_size} C={chunk_size} M={slots}"
    figure.suptitle(
        setting.format(**report["setting"])
        + f", {report['processor']}, {report['threads']} threads"
    )
    figure.savefig(path, dpi=120)


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add(
        "--chunks",
        type=int,
        nargs="+",
        default=[1, 2, 4, 8, 16, 32],
        help="numbers of chunks (%(default)s)",
    )
    add("--chunk-size", type=int, default=512, help="C (%(default)s)")
    add("--slots", type=int, default=64, help="M, memory tokens (%(default)s)")
    add("--batch", type=int, default=2, help="B (%(default)s)")
    add("--heads", type=int, default=12, help="H (%(default)s)")
    add("--head-size", type=int, default=64, help="D (%(default)s)")
    add(
        "--masked-up-to",
        type=int,
        default=4096,
        help="longest sequence that the masked contender gets (%(default)s)",
    )
    add_round_options(parser, repeats=5, warmup=1)
    add_common_options(parser, "global_memory")
    args = parse(parser)
    if min(args.chunk_size, *args.chunks) < 1:
        parser.error("--chunk-size and all --chunks must be at least 1")
    return args


def main() -> None:
    args = parse_arguments()
    check_agreement(args)
    report = start_report(args)
    report["rows"] = []
    for chunks in args.chunks:
        report["rows"].append(measure(args, chunks))
        print(describe(report["rows"][-1]), flush=True)
    write_report(report, args.out)
    plot(report, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
