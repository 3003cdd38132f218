"""Options, timing, peak memory and reports of all benchmarks. Does not import fairseq."""

import argparse
import json
import os
import platform
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # Otherwise the profiler logs every start and stop.

import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from tqdm import tqdm  # noqa: E402

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
BUSY = 0.5
MIB = 2**20
Name = TypeVar("Name")


def make_parser(description: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_common_options(parser: argparse.ArgumentParser, results: str) -> None:
    """results: the default name of the report."""
    add = parser.add_argument
    add("--threads", type=int, help="CPU threads (torch's default)")
    add(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="clock of the measurement: wall time, or the processor time of this program, which "
        "other programs affect less and which needs --threads 1 (%(default)s)",
    )
    add(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="cpu or cuda (%(default)s)",
    )
    add(
        "--out",
        type=Path,
        default=Path(__file__).parent / "results" / results,
        help="path of the report without its ending: .json and .png are added (%(default)s)",
    )


def add_round_options(parser: argparse.ArgumentParser, repeats: int, warmup: int) -> None:
    """repeats, warmup: the defaults."""
    add = parser.add_argument
    add("--repeats", type=int, default=repeats, help="timed rounds (%(default)s)")
    add("--warmup", type=int, default=warmup, help="rounds before them (%(default)s)")


def parse(parser: argparse.ArgumentParser) -> Namespace:
    """Parses, and sets the number of threads."""
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.clock == "cpu" and torch.get_num_threads() > 1:
        parser.error("--clock cpu adds up the time of all threads, so it needs --threads 1")
    if args.clock == "cpu" and args.device != "cpu":
        parser.error(f"--clock cpu does not measure --device {args.device}; use --clock wall")
    if args.device.startswith("cuda:"):
        torch.cuda.set_device(args.device)
    return args


def synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def seconds(args: Namespace, work: Callable[[], object]) -> float:
    """The seconds that `work` takes on --device, measured with --clock."""
    clock = CLOCKS[args.clock]
    synchronize(args.device)
    start = clock()
    work()
    synchronize(args.device)
    return clock() - start


def take_turns(
    args: Namespace, contenders: Mapping[Name, Callable[[], object]]
) -> dict[Name, list[float]]:
    """The seconds of each contender in --repeats rounds, which follow --warmup other rounds.

    In a round, each contender runs once.
    """
    taken: dict[Name, list[float]] = {name: [] for name in contenders}
    for round_ in tqdm(range(args.warmup + args.repeats), "rounds", leave=False, disable=None):
        for name, work in contenders.items():
            time = seconds(args, work)
            if round_ >= args.warmup:
                taken[name].append(time)
    return taken


def peak_bytes(args: Namespace, work: Callable[[], object]) -> int:
    """The peak memory of `work` in bytes, with its result and without its inputs."""
    if args.device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    # Allocations of torch's allocator, and deallocations as negative numbers.
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate(event.nbytes() for event in events), default=0)


def processor(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def start_report(args: Namespace) -> dict[str, Any]:
    """The machine and the options. Warns if other programs are running."""
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"warning: the load average is {load:.2f}: other programs may change the times")
    setting = {name: value for name, value in vars(args).items() if name != "out"}
    environment = {k: v for k, v in os.environ.items() if k.startswith(("MALLOC_", "OMP_"))}
    report = {
        "processor": processor(args.device),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "environment": environment,
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


def make_panels(count: int) -> tuple[Any, Any]:
    """A figure with `count` axes in a row."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(
        1, count, figsize=(4.7 * count, 4.2), layout="constrained", squeeze=False
    )
    return figure, grid[0]


def over_lengths(axes: Any, lengths: list[int], **labels: Any) -> None:
    """Adds a logarithmic x axis of lengths, a grid and a legend. labels: of `Axes.set`."""
    axes.set(xscale="log", xlabel="length", **labels)
    axes.set_xticks(lengths, [str(length) for length in lengths], minor=False)
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    axes.grid(alpha=0.3)
    axes.legend()
