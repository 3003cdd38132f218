"""ABC on a GPU beside what one would use instead: forward, backward, memory, and decoding steps.

    python benchmarks/gpu.py --out results/gpu
    python benchmarks/gpu.py --device cpu --out results/cpu   # small sizes, within a minute

Needs torch and triton alone, and no network. The contenders are `abc_attention`, flash attention
(`scaled_dot_product_attention`), `flex_attention`, and, where the package is installed,
flash-linear-attention's `chunk_abc` and `fused_additive_gate` with `chunk_gsa`, which also compute
ABC. Outputs and gradients are compared with float64 first. The contenders run in turns; the report
has medians, and on a GPU the times of the kernels of ABC. It is written after every measurement,
so that a run that is stopped keeps what it has.
"""

import argparse
import importlib.util
import json
import math
import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from fairseq_memattn.attention import abc_attention, abc_step  # noqa: E402
from fairseq_memattn.attention.ops.abc.naive import causal_attention as naive  # noqa: E402
from fairseq_memattn.attention.ops.common import MemoryState  # noqa: E402
from fairseq_memattn.evaluation.tables import table  # noqa: E402

FORMAT = 1  # of the report
RESULTS = Path(__file__).parent / "results"
# What is measured by default on a GPU, and what a CPU measures within a minute.
DEFAULTS: dict[str, dict[str, Any]] = {
    "cuda": {
        "shapes": ["8x1024x8x64", "1x8192x16x64", "1x32768x16x128"],
        "slots": [32, 64, 128],
        "step_lengths": [1024, 4096, 16384, 65536],
        "dtype": "bf16",
        "repeats": 20,
        "out": RESULTS / "gpu",
    },
    "cpu": {
        "shapes": ["1x512x8x64", "1x2048x8x64"],
        "slots": [32, 64],
        "step_lengths": [1024, 4096, 16384],
        "dtype": "fp32",
        "repeats": 5,
        "out": RESULTS / "cpu",
    },
}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
MIB = 2**20
Attention = Callable[..., Tensor]


class Shape(NamedTuple):
    """B, T, H, D."""

    batch: int
    length: int
    heads: int
    width: int

    @classmethod
    def read(cls, text: str) -> "Shape":
        sizes = text.split("x")
        if len(sizes) != 4 or not all(size.isdecimal() and int(size) for size in sizes):
            raise argparse.ArgumentTypeError(f"must be BxTxHxD, four numbers, but is {text!r}")
        return cls(*map(int, sizes))

    def __str__(self) -> str:
        return "x".join(map(str, self))


# --- The contenders: q, k, v (B, H, T, D) and log_alpha (B, H, T, M) to (B, H, T, D)


def abc(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor) -> Tensor:
    return abc_attention(q, k, v, log_alpha, causal=True)


def flash(q: Tensor, k: Tensor, v: Tensor, _: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(q, k, v, is_causal=True)


@cache
def compiled_flex(length: int, device: str) -> Callable[..., Tensor]:
    """`flex_attention` with a causal mask, for one length."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()  # which limits how often one function is compiled
    mask = create_block_mask(lambda b, h, t, j: t >= j, None, None, length, length, device=device)
    return partial(torch.compile(flex_attention, dynamic=False), block_mask=mask)


def flex(q: Tensor, k: Tensor, v: Tensor, _: Tensor) -> Tensor:
    return compiled_flex(q.shape[2], str(q.device))(q, k, v)


def by_time(function: Callable[..., Any], *inputs: Tensor) -> Tensor:
    """A function of (B, T, H, D), as flash-linear-attention's are."""
    out = function(*(x.transpose(1, 2).contiguous() for x in inputs))
    return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)


def bounded(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor) -> Tensor:
    from fla.ops.abc import chunk_abc

    return by_time(chunk_abc, q, k, v, log_alpha)


def gated_slots(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor) -> Tensor:
    from fla.ops.gsa import chunk_gsa
    from fla.ops.gsa.gate import fused_additive_gate

    def attend(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor) -> Any:
        fraction, gate, *_ = fused_additive_gate(log_alpha, gate_dtype=torch.float32)
        return chunk_gsa(q, k, v, fraction.to(q.dtype), gate)

    return by_time(attend, q, k, v, log_alpha)


CONTENDERS: dict[str, Attention] = {
    "abc": abc,
    "flash": flash,
    "flex": flex,
    "fla-abc": bounded,
    "fla-gsa": gated_slots,
}


def contenders(device: str) -> list[str]:
    """Those that run on this device, with what is installed."""
    absent = set() if device.startswith("cuda") else {"flex"}
    if importlib.util.find_spec("fla") is None:
        absent |= {"fla-abc", "fla-gsa"}
    return [name for name in CONTENDERS if name not in absent]


def computes_abc(name: str) -> bool:
    return name not in ("flash", "flex")


# --- What is measured


def draw(shape: Shape, slots: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """q, k, v and log_alpha, whose gradients are asked for.

    Keys have a mean, and so do values, as those of projections with biases.
    """
    generator = torch.Generator(device).manual_seed(0)
    width, of = shape.width, (shape.batch, shape.heads, shape.length)
    sizes = [width, width, width, slots]
    drawn = (torch.randn(*of, size, generator=generator, device=device) for size in sizes)
    means = (0.0, 1.0, 1.0, 0.0)
    return [(x + mean).to(dtype).requires_grad_() for x, mean in zip(drawn, means, strict=True)]


def errors(attend: Attention, inputs: list[Tensor]) -> list[float]:
    """Of the output and of each gradient, the largest error relative to the largest value."""
    out = attend(*inputs)
    weights = torch.randn_like(out)
    actual = [out, *torch.autograd.grad(out, inputs, weights)]
    exact = [x.detach().double().cpu().requires_grad_() for x in inputs]
    q, k, v, log_alpha = exact
    start = MemoryState.empty(k, v, log_alpha)
    wanted, _ = naive(q, k, v, log_alpha, start, q.shape[3] ** -0.5, None)
    expected = [wanted, *torch.autograd.grad(wanted, exact, weights.double().cpu())]
    pairs = zip(actual, expected, strict=True)
    return [((a.double().cpu() - e).abs().max() / e.abs().max()).item() for a, e in pairs]


def forward(attend: Attention, inputs: list[Tensor]) -> None:
    with torch.no_grad():
        attend(*inputs)


def forward_backward(attend: Attention, inputs: list[Tensor]) -> None:
    out = attend(*inputs)
    torch.autograd.grad(out, inputs, torch.ones_like(out), allow_unused=True)


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(run: Callable[[], object], device: torch.device) -> float:
    synchronise(device)
    begin = time.perf_counter()
    run()
    synchronise(device)
    return time.perf_counter() - begin


def peak_mib(run: Callable[[], object], device: torch.device) -> float | None:
    """What a run allocates beside what is there before it; None on a CPU."""
    if device.type != "cuda":
        return None
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    synchronise(device)
    return (torch.cuda.max_memory_allocated(device) - before) / MIB


def measure(
    attends: dict[str, Attention], inputs: list[Tensor], repeats: int, device: torch.device
) -> dict[str, dict[str, Any]]:
    """Medians in milliseconds, and peaks in MiB, by contender; the reason of one that fails."""
    measured: dict[str, dict[str, Any]] = {}
    for kind in (forward, forward_backward):
        runs = {}
        for name, attend in attends.items():
            run = partial(kind, attend, inputs)
            try:
                run()
                peak = peak_mib(run, device)
            except Exception as error:  # of one contender; the others are measured
                measured.setdefault(name, {})["error"] = f"{type(error).__name__}: {error}"[:300]
                continue
            measured.setdefault(name, {})[f"{kind.__name__}_peak_mib"] = peak
            runs[name] = run
        taken: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(repeats):
            for name, run in runs.items():
                taken[name].append(1000 * seconds(run, device))
        for name, times in taken.items():
            measured[name][f"{kind.__name__}_ms"] = statistics.median(times)
    return measured


def kernel_times(attend: Attention, inputs: list[Tensor], runs: int = 3) -> dict[str, float]:
    """Microseconds of each kernel of a forward and backward pass on a GPU, the longest first."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(runs):
            forward_backward(attend, inputs)
        torch.cuda.synchronize()
    times: dict[str, float] = {}
    for event in profiler.key_averages():
        # The kernels of torch have long names, which begin with a type.
        name = event.key if event.key.isidentifier() else "others"
        times[name] = times.get(name, 0.0) + event.self_device_time_total / runs
    longest = sorted(times.items(), key=lambda item: -item[1])
    return {name: round(taken, 1) for name, taken in longest if taken}


def measure_steps(
    shape: Shape, slots: int, dtype: torch.dtype, device: torch.device, repeats: int
) -> dict[str, float]:
    """Milliseconds of one step after `shape.length` tokens: ABC's state, and a softmax cache."""
    q, k, v, log_alpha = (x.detach() for x in draw(shape._replace(length=1), slots, dtype, device))
    state = MemoryState.empty(k, v, log_alpha)
    of_cache = (shape.batch, shape.heads, shape.length, shape.width)
    keys, values = (torch.randn(of_cache, device=device).to(dtype) for _ in range(2))

    def step() -> None:
        with torch.no_grad():
            abc_step(q, k, v, log_alpha, state, in_place=True)

    def softmax_step() -> None:
        keys[:, :, -1:], values[:, :, -1:] = k, v
        scaled_dot_product_attention(q, keys, values)

    runs = {"abc": step, "softmax": softmax_step}
    for run in runs.values():
        run()
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            taken[name].append(1000 * seconds(run, device))
    return {name: statistics.median(times) for name, times in taken.items()}


# --- The report


class Report:
    """Measurements that are written as they come."""

    def __init__(self, out: Path, device: torch.device, args: argparse.Namespace) -> None:
        self.path = out.with_suffix(".json")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        self.data: dict[str, Any] = {
            "format": FORMAT,
            "device": name,
            "torch": torch.__version__,
            "dtype": args.dtype,
            "repeats": args.repeats,
            "correctness": [],
            "attention": [],
            "steps": [],
            "complete": False,
        }

    def add(self, part: str, row: dict[str, Any]) -> None:
        self.data[part].append(row)
        self.write()

    def write(self) -> None:
        partial_file = self.path.with_name(f"{self.path.name}.part")
        partial_file.write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")
        os.replace(partial_file, self.path)

    def show(self) -> None:
        print(f"{self.data['device']}, torch {self.data['torch']}, {self.data['dtype']}")
        rows = [["contender", "output", "dq", "dk", "dv", "dlog_alpha"]]
        for row in self.data["correctness"]:
            told = [f"{error:.1e}" for error in row["errors"]] or [row["error"], *[""] * 4]
            rows.append([row["contender"], *told])
        print(f"\nLargest error relative to float64\n{table(rows)}")
        keys = ["forward_ms", "forward_backward_ms", "forward_backward_peak_mib"]
        rows = [["B x T x H x D", "M", "contender", "forward ms", "and backward ms", "peak MiB"]]
        for row in self.data["attention"]:
            for name, found in row["contenders"].items():
                told = [_number(found.get(key)) for key in keys]
                rows.append([row["shape"], str(row["slots"]), name, *told])
        print(f"\n{table(rows, left=1)}")
        for row in self.data["attention"]:
            if "kernels_us" in row:
                shown = ", ".join(f"{name} {us:.0f}" for name, us in row["kernels_us"].items())
                print(f"\nabc at {row['shape']}, M {row['slots']}, kernels in us: {shown}")
        rows = [["tokens before", "abc ms", "softmax ms"]]
        for row in self.data["steps"]:
            times = (_number(row.get(name)) for name in ("abc", "softmax"))
            rows.append([str(row["length"]), *times])
        print(f"\nA decoding step\n{table(rows)}")

    def plot(self) -> None:
        """A picture of the times, where matplotlib is installed."""
        if importlib.util.find_spec("matplotlib") is None:
            print("no picture: matplotlib is not installed", file=sys.stderr)
            return
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 4), layout="constrained")
        bars, lines = figure.subplots(1, 2)
        names = list(dict.fromkeys(n for row in self.data["attention"] for n in row["contenders"]))
        for number, name in enumerate(names):
            times = [
                row["contenders"].get(name, {}).get("forward_backward_ms") or 0
                for row in self.data["attention"]
            ]
            places = [place + number / (len(names) + 1) for place in range(len(times))]
            bars.bar(places, times, width=1 / (len(names) + 1), label=name)
        labels = [f"{row['shape']}\nM {row['slots']}" for row in self.data["attention"]]
        bars.set(ylabel="forward and backward, ms", yscale="log")
        bars.set_xticks(range(len(labels)), labels, fontsize=6)
        bars.legend()
        lengths = [row["length"] for row in self.data["steps"]]
        for name in ("abc", "softmax"):
            times = [row.get(name, math.nan) for row in self.data["steps"]]
            lines.plot(lengths, times, marker="o", label=name)
        lines.set(xlabel="tokens before", ylabel="a decoding step, ms", xscale="log")
        lines.legend()
        figure.savefig(self.path.with_suffix(".png"), dpi=120)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--shapes",
        type=Shape.read,
        nargs="+",
        metavar="BxTxHxD",
        help=f"batch, length, heads and head size, such as 8x1024x8x64 ({defaults('shapes')})",
    )
    add("--slots", type=int, nargs="+", metavar="M", help=f"memory slots ({defaults('slots')})")
    add(
        "--step-lengths",
        type=int,
        nargs="+",
        metavar="T",
        help="tokens before the decoding step that is measured, in the batch, heads and head size "
        f"of the first shape ({defaults('step_lengths')})",
    )
    add(
        "--contenders",
        nargs="+",
        choices=CONTENDERS,
        help="what is measured (all that run on the device; flash-linear-attention's fla-abc and "
        "fla-gsa need its package; the first run of fla-gsa takes minutes, as it is tuned)",
    )
    add("--dtype", choices=DTYPES, help=f"of the inputs ({defaults('dtype')})")
    add("--repeats", type=int, metavar="N", help=f"timed rounds ({defaults('repeats')})")
    add(
        "--budget",
        type=float,
        default=450.0,
        metavar="SECONDS",
        help="after which nothing new begins (%(default)s)",
    )
    add("--device", default="cuda", help="cuda, cuda:N or cpu (%(default)s)")
    add(
        "--out",
        type=Path,
        help=f"the report, without its ending ({defaults('out')})",
    )
    args = parser.parse_args(argv)
    if problem := wrong_device(args.device):
        parser.exit(2, f"{parser.prog}: error: {problem}\n")
    for name, value in DEFAULTS[args.device.split(":")[0]].items():
        if getattr(args, name) is None:
            setattr(args, name, [*map(Shape.read, value)] if name == "shapes" else value)
    found = contenders(args.device)
    args.contenders = args.contenders or found
    if absent := [name for name in args.contenders if name not in found]:
        needed = "a GPU" if absent[0] == "flex" else "the package flash-linear-attention"
        parser.error(f"--contenders: {absent[0]} needs {needed}")
    for name in ("slots", "step_lengths", "repeats"):
        value = getattr(args, name)
        least = value if isinstance(value, int) else min(value)
        if least < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, but is {least}")
    return args


def defaults(name: str) -> str:
    """The default of an option on either device, for `--help`."""
    values = (DEFAULTS[device][name] for device in ("cuda", "cpu"))
    told = [" ".join(map(str, v)) if isinstance(v, list) else str(v) for v in values]
    return f"default {told[0]}; on a CPU {told[1]}"


def wrong_device(name: str) -> str | None:
    """What is wrong with --device, in a sentence."""
    found = torch.cuda.device_count()
    if name == "cpu":
        return None
    if not re.fullmatch(r"cuda(:\d+)?", name):
        return f"--device must be cuda, cuda:N or cpu, but is {name}"
    if not found:
        return "torch finds no GPU; --device cpu measures small sizes on the CPU"
    if int(name.partition(":")[2] or 0) >= found:
        return f"--device must be below cuda:{found}, as torch finds {found} GPUs, but is {name}"
    return None


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    end = time.monotonic() + args.budget
    device, dtype = torch.device(args.device), DTYPES[args.dtype]
    report = Report(args.out, device, args)
    print(
        f"{report.data['device']}: {len(args.step_lengths)} decoding steps and "
        f"{len(args.shapes) * len(args.slots)} settings of attention, nothing new after "
        f"{args.budget:g} s",
        file=sys.stderr,
    )
    try:
        run_all(args, report, device, dtype, end)
    except KeyboardInterrupt:
        print("stopped; the report has what was measured", file=sys.stderr)
    report.write()
    report.show()
    report.plot()


def run_all(
    args: argparse.Namespace, report: Report, device: torch.device, dtype: torch.dtype, end: float
) -> None:
    # Long enough for several segments of the kernels, and short enough for the slow form.
    shortest = min(shape.length for shape in args.shapes)
    small = Shape(1, min(1100, shortest), 2, args.shapes[0].width)
    attends = {name: CONTENDERS[name] for name in args.contenders}
    for name, attend in attends.items():
        if computes_abc(name):
            row: dict[str, Any] = {"contender": name, "shape": str(small), "errors": []}
            try:
                row["errors"] = errors(attend, draw(small, max(args.slots), dtype, device))
            except Exception as error:  # of one contender; the others are measured
                row["error"] = f"{type(error).__name__}: {error}"[:300]
            report.add("correctness", row)
            print(f"{name} against float64: done", file=sys.stderr)
    complete = True
    for shape in args.shapes:
        for slots in args.slots:
            if time.monotonic() >= end:
                complete = False
            else:
                inputs = draw(shape, slots, dtype, device)
                found = measure(attends, inputs, args.repeats, device)
                row = {"shape": str(shape), "slots": slots, "contenders": found}
                report.add("attention", row)
                if device.type == "cuda" and "error" not in found.get("abc", {"error": ""}):
                    row["kernels_us"] = kernel_times(abc, inputs)
                print(f"{shape}, M {slots}: done", file=sys.stderr)
    for length in args.step_lengths:
        if time.monotonic() >= end:
            complete = False
        else:
            shape = args.shapes[0]._replace(length=length)
            step: dict[str, Any] = {"length": length}
            try:
                step |= measure_steps(shape, args.slots[0], dtype, device, args.repeats)
            except Exception as error:  # such as a cache that does not fit
                step["error"] = f"{type(error).__name__}: {error}"[:300]
            report.add("steps", step)
            print(f"a step after {length} tokens: done", file=sys.stderr)
    report.data["complete"] = complete


if __name__ == "__main__":
    main()
