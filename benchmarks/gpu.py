"""ABC on a GPU beside what one would use instead: forward, backward, memory, and decoding steps.

    python benchmarks/gpu.py --out results/gpu       # within four minutes
    python benchmarks/gpu.py --device cpu --out results/cpu   # small sizes, within a minute

Needs torch and triton alone, and no network. The contenders are `abc_attention`, flash attention
(`scaled_dot_product_attention`), `flex_attention`, and, where the package is installed,
flash-linear-attention's `chunk_abc` and `fused_additive_gate` with `chunk_gsa`, which also compute
ABC. Each gets its inputs in the layout that it takes without a copy. One contender comes after
another, what compiles longest comes last, and --budget, which includes compilation, ends the
measurement even within a run. The outputs and gradients of those that compute ABC are compared with
float64. The report has medians: of a call that is waited for, of the time after which it returns to
the host and, on a GPU, of a replay as a CUDA graph; and the time of each kernel. It is written
after every measurement, so that a run that is stopped keeps what it has.
"""

import argparse
import importlib.util
import json
import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from fairseq_memattn.attention import abc_attention, abc_step  # noqa: E402
from fairseq_memattn.attention.ops.abc.naive import causal_sums as naive  # noqa: E402
from fairseq_memattn.attention.ops.common import MemoryState  # noqa: E402
from fairseq_memattn.evaluation.tables import table  # noqa: E402

FORMAT = 2  # of the report
RESULTS = Path(__file__).parent / "results"
# What is measured by default on a GPU, and what a CPU measures within a minute.
DEFAULTS: dict[str, dict[str, Any]] = {
    "cuda": {
        "shapes": [
            *("8x1024x8x64", "1x8192x16x64", "1x32768x16x128", "8x2048x8x64", "4x4096x8x64")
        ],
        "slots": [64],
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


def bounded(*inputs: Tensor) -> Tensor:
    from fla.ops.abc import chunk_abc

    out: Tensor = chunk_abc(*(x.transpose(1, 2) for x in inputs))[0]
    return out.transpose(1, 2)


def gated_slots(*inputs: Tensor) -> Tensor:
    from fla.ops.gsa import chunk_gsa
    from fla.ops.gsa.gate import fused_additive_gate

    q, k, v, log_alpha = (x.transpose(1, 2) for x in inputs)
    fraction, gate, *_ = fused_additive_gate(log_alpha, gate_dtype=torch.float32)
    out: Tensor = chunk_gsa(q, k, v, fraction.to(q.dtype), gate)[0]
    return out.transpose(1, 2)


# What takes longest to compile and to be tuned comes last.
CONTENDERS: dict[str, Attention] = {
    "abc": abc,
    "flash": flash,
    "fla-abc": bounded,
    "flex": flex,
    "fla-gsa": gated_slots,
}
HEADS_FIRST = ("fla-abc",)  # takes (B, H, T, D) in this order in memory, the others (B, T, H, D)


def contenders(device: str) -> list[str]:
    """Those that run on this device, with what is installed."""
    absent = set() if device.startswith("cuda") else {"flex"}
    if importlib.util.find_spec("fla") is None:
        absent |= {"fla-abc", "fla-gsa"}
    return [name for name in CONTENDERS if name not in absent]


# --- What is measured


def draw(
    shape: Shape, slots: int, dtype: torch.dtype, device: torch.device, heads_first: bool = False
) -> list[Tensor]:
    """q, k, v (B, H, T, D) and log_alpha, whose gradients are asked for.

    Keys have a mean, and so do values, as those of projections with biases.

    heads_first: whether the memory is in the order of the axes, or that of (B, T, H, D)
    """
    generator = torch.Generator(device).manual_seed(0)
    width, of = shape.width, (shape.batch, shape.heads, shape.length)
    sizes = [width, width, width, slots]
    drawn = (torch.randn(*of, size, generator=generator, device=device) for size in sizes)
    inputs = [(x + mean).to(dtype) for x, mean in zip(drawn, (0.0, 1.0, 1.0, 0.0), strict=True)]
    if not heads_first:
        inputs = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs]
    return [x.requires_grad_() for x in inputs]


@cache
def exactly(shape: Shape, slots: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """The gradient of the output, and in float64 the output and the gradients of `draw`."""
    exact = [x.detach().double().cpu().requires_grad_() for x in draw(shape, slots, dtype, device)]
    q, k, v, log_alpha = exact
    weights = torch.randn(q.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    start = MemoryState.empty(k, v, log_alpha)
    out, *_ = naive(q, k, v, log_alpha, start, q.shape[3] ** -0.5, None)
    return [weights, out.detach(), *torch.autograd.grad(out, exact, weights.double())]


def errors(
    name: str, shape: Shape, slots: int, dtype: torch.dtype, device: torch.device
) -> list[float]:
    """Of the output and of each gradient, the largest error relative to the largest value."""
    inputs = draw(shape, slots, dtype, device, name in HEADS_FIRST)
    weights, *expected = exactly(shape, slots, dtype, device)
    out = CONTENDERS[name](*inputs)
    actual = [out, *torch.autograd.grad(out, inputs, weights.to(device))]
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


def milliseconds(run: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    """Of a call that is waited for, and until it returns, which is earlier on a GPU; medians."""
    taken = []
    with torch.autograd.set_multithreading_enabled(True):
        for _ in range(repeats):
            synchronise(device)
            begin = time.perf_counter()
            run()
            returned = time.perf_counter()
            synchronise(device)
            taken.append((time.perf_counter() - begin, returned - begin))
    return [1000 * statistics.median(times) for times in zip(*taken, strict=True)]


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
    attend: Attention, inputs: list[Tensor], repeats: int, device: torch.device
) -> Iterator[dict[str, Any]]:
    """Medians in milliseconds, peaks in MiB, and kernels in microseconds, as they are measured."""
    for kind in (forward, forward_backward):
        run, name = partial(kind, attend, inputs), kind.__name__
        run()  # compiles
        found: dict[str, Any] = {f"{name}_peak_mib": peak_mib(run, device)}
        whole, host = milliseconds(run, device, repeats)
        yield {**found, f"{name}_ms": whole, f"{name}_host_ms": host}
    if device.type == "cuda":
        yield {"kernels_us": kernel_times(run)}
        yield {"graph_ms": replay_ms(run, repeats)}


def kernel_times(run: Callable[[], object], runs: int = 3) -> dict[str, list[float]]:
    """How often each kernel runs on a GPU, and its microseconds in all, the longest first."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(runs):
            run()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    for event in profiler.key_averages():
        if event.self_device_time_total:
            # The kernels of torch have long names, which begin with a type.
            found = times.setdefault(event.key.removeprefix("void ")[:60], [0.0, 0.0])
            found[0] += event.count / runs
            found[1] += round(event.self_device_time_total / runs, 1)
    return dict(sorted(times.items(), key=lambda item: -item[1][1]))


def replay_ms(run: Callable[[], object], repeats: int) -> float:
    """The median of replays of a call as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    taken = []
    for _ in range(repeats + 1):  # the first is slower
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end))
    return statistics.median(taken[1:])


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

    found = {}
    for name, run in (("abc", step), ("softmax", softmax_step)):
        run()  # compiles
        found[f"{name}_ms"] = milliseconds(run, device, repeats)[0]
        if device.type == "cuda":
            found[f"{name}_graph_ms"] = replay_ms(run, repeats)
    return found


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

    @contextmanager
    def row(self, part: str, **names: Any) -> Iterator[dict[str, Any]]:
        """A row that is filled in the block; an error there is one of its contender alone."""
        self.data[part].append(names)
        label, began = ", ".join(map(str, names.values())), time.monotonic()
        try:
            yield names
        except Exception as error:
            names["error"] = f"{type(error).__name__}: {error}"[:300]
        names["seconds"] = round(time.monotonic() - began, 1)
        self.write()
        print(f"{part}, {label}: {names['seconds']} s", file=sys.stderr)

    def write(self) -> None:
        partial_file = self.path.with_name(f"{self.path.name}.part")
        partial_file.write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")
        os.replace(partial_file, self.path)

    def show(self) -> None:
        print(f"{self.data['device']}, torch {self.data['torch']}, {self.data['dtype']}")
        rows = [["contender", "output", "dq", "dk", "dv", "dlog_alpha"]]
        for row in self.data["correctness"]:
            told = [f"{error:.1e}" for error in row.get("errors", [])]
            told = told or [row.get("error", "-"), *[""] * 4]
            rows.append([row["contender"], *told])
        print(f"\nLargest error relative to float64\n{table(rows)}")
        rows = [["B x T x H x D", "M", "contender", *COLUMNS.values(), "kernels ms"]]
        settings = list(
            dict.fromkeys((row["shape"], row["slots"]) for row in self.data["attention"])
        )
        ordered = sorted(
            self.data["attention"], key=lambda row: settings.index((row["shape"], row["slots"]))
        )
        for row in ordered:
            told = [_number(row.get(key)) for key in COLUMNS]
            kernels = row.get("kernels_us")
            busy = kernels and sum(us for _, us in kernels.values()) / 1000
            rows.append([row["shape"], str(row["slots"]), row["contender"], *told, _number(busy)])
        print(f"\nMilliseconds, and the peak in MiB\n{table(rows, left=1)}")
        for row in ordered:
            if "kernels_us" in row:
                longest = list(row["kernels_us"].items())[:12]
                shown = ", ".join(f"{name} {count:g} x, {us:.0f}" for name, (count, us) in longest)
                print(f"\n{row['contender']} at {row['shape']}, M {row['slots']}, us: {shown}")
            if "error" in row:
                print(f"\n{row['contender']} at {row['shape']}, M {row['slots']}: {row['error']}")
        keys = ("abc_ms", "abc_graph_ms", "softmax_ms", "softmax_graph_ms")
        rows = [["tokens before", *(key.replace("_", " ") for key in keys)]]
        for row in self.data["steps"]:
            rows.append([str(row["length"]), *(_number(row.get(key)) for key in keys)])
        print(f"\nA decoding step\n{table(rows)}")


# What a row has, and the head of its column.
COLUMNS = {
    "forward_ms": "forward",
    "forward_backward_ms": "and backward",
    "forward_backward_host_ms": "its host",
    "graph_ms": "its graph",
    "forward_backward_peak_mib": "its peak",
}


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
        default=220.0,
        metavar="SECONDS",
        help="for the measurements, compilation included (%(default)s)",
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


class OutOfTime(BaseException):
    """Of --budget: no error of a contender."""


def interrupt(*_: object) -> None:
    raise OutOfTime


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    device = torch.device(args.device)
    report = Report(args.out, device, args)
    print(f"{report.data['device']}: {args.budget:g} s at most", file=sys.stderr)
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, max(args.budget, 1e-3))
    try:
        # A signal does not reach a backward pass in another thread, which may compile for minutes.
        with torch.autograd.set_multithreading_enabled(False):
            run_all(args, report, device)
        report.data["complete"] = True
    except OutOfTime:
        print("out of time; the report has what was measured", file=sys.stderr)
    except KeyboardInterrupt:
        print("stopped; the report has what was measured", file=sys.stderr)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    report.write()
    report.show()


def run_all(args: argparse.Namespace, report: Report, device: torch.device) -> None:
    dtype = DTYPES[args.dtype]
    for length in args.step_lengths:
        shape = args.shapes[0]._replace(length=length)
        with report.row("steps", length=length) as row:
            row |= measure_steps(shape, args.slots[0], dtype, device, args.repeats)
    # Long enough for several chunks of the kernels, and short enough for the slow form.
    small = Shape(1, min(1100, *(x.length for x in args.shapes)), 2, args.shapes[0].width)
    for name in args.contenders:
        if name not in ("flash", "flex"):
            with report.row("correctness", contender=name, shape=str(small)) as row:
                row["errors"] = errors(name, small, max(args.slots), dtype, device)
        for shape, slots in product(args.shapes, args.slots):
            setting = {"contender": name, "shape": str(shape), "slots": slots}
            with report.row("attention", **setting) as row:
                inputs = draw(shape, slots, dtype, device, name in HEADS_FIRST)
                for found in measure(CONTENDERS[name], inputs, args.repeats, device):
                    row |= found


if __name__ == "__main__":
    main()
