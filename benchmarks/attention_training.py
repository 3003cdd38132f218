"""Time and memory of training with causal attention, against the length of the sequence.

Contenders, all on the same q, k, v of (B, H, T, D):

    abc       fairseq_memattn.attention.abc_attention, M slots, its own backward pass
    plain     the same function by benchmarks/plain_chunked.py, with autograd's backward pass
    softmax   torch.nn.functional.scaled_dot_product_attention, is_causal=True

The time is that of one forward and one backward pass, median over rounds in which the contenders
take turns. The memory is what autograd keeps between the two, each storage counted once.

How large the ratio softmax / abc could be at best is told by counting floating-point operations
in matrix products, two for each multiplication with addition. Per head and token, with C the
chunk length of `abc` and a product over a causal half counted as a half:

    softmax   forward 2 products over T/2 tokens, backward 5 (the logits are recomputed):
              7 * 2 * (T / 2) * D = 7 T D
    abc       forward:  4 products with M x D memories, and over a chunk, whose causal half is not
                        skipped, 2 of width D and 2 of width M:   8 M D +  4 C D +  4 C M
              backward: 8 with memories, 5 of width D, 5 of M:   16 M D + 10 C D + 10 C M

So `allowed` = 7 T D / (24 M D + 14 C (D + M)): what would be gained if both ran at one speed.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypedDict

import torch
from plain_chunked import CHUNK_SIZE, plain_chunked_attention
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.attention import abc_attention, causal

Contender = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class Row(TypedDict):
    """What one length gave; all dictionaries but the last are by contender."""

    length: int
    median_seconds: dict[str, float]
    fastest_seconds: dict[str, float]
    slowest_seconds: dict[str, float]
    saved_bytes: dict[str, int]
    ratios: dict[str, float]


class Report(TypedDict):
    torch: str
    processor: str
    threads: int
    setting: dict[str, int | str]
    rows: list[Row]


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor) -> Tensor:
    """Reads no log_alpha."""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


CONTENDERS: dict[str, Contender] = {
    "abc": partial(abc_attention, causal=True),
    "plain": plain_chunked_attention,
    "softmax": softmax_attention,
}


def make_inputs(args: argparse.Namespace, length: int) -> list[Tensor]:
    torch.manual_seed(0)
    widths = [args.head_size] * 3 + [args.slots]
    options = {"device": args.device, "dtype": DTYPES[args.dtype], "requires_grad": True}
    return [torch.randn(args.batch, args.heads, length, width, **options) for width in widths]


def synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def train_once(contender: Contender, inputs: list[Tensor], device: str) -> float:
    """Seconds that one forward and one backward pass take."""
    for tensor in inputs:
        tensor.grad = None
    grad = torch.ones_like(inputs[0])
    synchronize(device)
    start = time.perf_counter()
    contender(*inputs).backward(grad)
    synchronize(device)
    return time.perf_counter() - start


def saved_bytes(contender: Contender, inputs: list[Tensor]) -> int:
    """Bytes of the distinct storages kept for the backward pass, the inputs' own included."""
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


def allowed_ratio(args: argparse.Namespace, length: int) -> float:
    """softmax / abc in floating-point operations, as counted at the top of this file."""
    width, slots, chunk = args.head_size, args.slots, min(causal.CHUNK_SIZE, length)
    return 7 * length * width / (24 * slots * width + 14 * chunk * (width + slots))


def measure(args: argparse.Namespace, length: int) -> Row:
    inputs = make_inputs(args, length)
    seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    memory = {name: saved_bytes(run, inputs) for name, run in CONTENDERS.items()}
    for round_ in range(args.warmup + args.repeats):
        for name, run in CONTENDERS.items():
            taken = train_once(run, inputs, args.device)
            if round_ >= args.warmup:
                seconds[name].append(taken)
    median = {name: statistics.median(taken) for name, taken in seconds.items()}
    return {
        "length": length,
        "median_seconds": median,
        "fastest_seconds": {name: min(taken) for name, taken in seconds.items()},
        "slowest_seconds": {name: max(taken) for name, taken in seconds.items()},
        "saved_bytes": memory,
        "ratios": {
            "softmax_over_abc": median["softmax"] / median["abc"],
            "softmax_over_abc_allowed": allowed_ratio(args, length),
            "plain_over_abc": median["plain"] / median["abc"],
        },
    }


def describe(row: Row) -> str:
    times = "  ".join(f"{name} {1e3 * t:9.2f} ms" for name, t in row["median_seconds"].items())
    memory = "  ".join(f"{name} {b / 2**20:7.1f} MiB" for name, b in row["saved_bytes"].items())
    ratios = "  ".join(f"{name} {ratio:6.2f}" for name, ratio in row["ratios"].items())
    return f"{row['length']:>6}  {times}  |  {ratios}  |  saved: {memory}"


def check_agreement(args: argparse.Namespace) -> None:
    """Two functions that differ would be compared for nothing."""
    inputs = [tensor.detach().float() for tensor in make_inputs(args, 8 * CHUNK_SIZE)]
    torch.testing.assert_close(
        CONTENDERS["plain"](*inputs), CONTENDERS["abc"](*inputs), rtol=1e-3, atol=1e-4
    )


def processor(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def plot(report: Report, path: Path) -> None:
    """Time (both axes logarithmic) and ratios against length."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = report["rows"]
    lengths = [row["length"] for row in rows]
    figure, (times, ratios) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name in CONTENDERS:
        milliseconds = [1e3 * row["median_seconds"][name] for row in rows]
        times.plot(lengths, milliseconds, marker="o", label=name)
    times.set(yscale="log", ylabel="ms", title="forward + backward")
    for name, style in zip(rows[0]["ratios"], ("o-", "k:", "s-"), strict=True):
        label = name.replace("_", " ")
        ratios.plot(lengths, [row["ratios"][name] for row in rows], style, label=label)
    ratios.axhline(1, color="grey", linewidth=0.8)
    ratios.set_yscale("log", base=2)
    ratios.yaxis.set_major_formatter("{x:g}")
    ratios.set_title("how many times faster abc is")
    for axes in (times, ratios):
        axes.set(xscale="log", xlabel="length")
        axes.set_xticks(lengths, [str(length) for length in lengths], minor=False)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend()
    setting = "B={batch} H={heads} D={head_size} M={slots} {dtype}".format(**report["setting"])
    figure.suptitle(f"{setting}, {report['processor']}, {report['threads']} threads")
    figure.savefig(path, dpi=120)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--lengths",
        type=int,
        nargs="+",
        default=[128, 512, 2048, 8192],
        help=f"sequence lengths T, multiples of {CHUNK_SIZE} (%(default)s)",
    )
    add("--batch", type=int, default=1, help="B (%(default)s)")
    add("--heads", type=int, default=8, help="H (%(default)s)")
    add("--head-size", type=int, default=64, help="D (%(default)s)")
    add("--slots", type=int, default=32, help="M, memory slots (%(default)s)")
    add("--repeats", type=int, default=7, help="timed rounds (%(default)s)")
    add("--warmup", type=int, default=2, help="rounds before them (%(default)s)")
    add("--threads", type=int, help="CPU threads (torch's default)")
    add("--dtype", choices=DTYPES, default="float32", help="of the inputs (%(default)s)")
    add(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="cpu or cuda (%(default)s)",
    )
    add(
        "--out",
        type=Path,
        default=Path(__file__).parent / "results" / "attention_training",
        help="path of the report without its ending: .json and .png are added (%(default)s)",
    )
    args = parser.parse_args()
    for length in args.lengths:
        if length < 1 or length % CHUNK_SIZE:
            parser.error(f"--lengths must be multiples of {CHUNK_SIZE}, but got {length}")
    return args


def main() -> None:
    args = parse_arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    check_agreement(args)
    report: Report = {
        "torch": torch.__version__,
        "processor": processor(args.device),
        "threads": torch.get_num_threads(),
        "setting": {
            name: getattr(args, name)
            for name in ("batch", "heads", "head_size", "slots", "dtype", "device", "repeats")
        },
        "rows": [],
    }
    print(
        f"{report['processor']}, {report['threads']} threads, torch {report['torch']}", flush=True
    )
    for length in args.lengths:
        row = measure(args, length)
        report["rows"].append(row)
        print(describe(row), flush=True)

    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".json").write_text(json.dumps(report, indent=2) + "\n")
    plot(report, args.out.with_suffix(".png"))
    print(f"wrote {args.out}.json and .png")


if __name__ == "__main__":
    main()
