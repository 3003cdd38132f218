"""Trains on one GPU for eight minutes, and ends with a table.

    python recipes/gpu.py          on a machine with a GPU
    python recipes/gpu.py --tiny   tiny models on the CPU, which shows that it works, and no more

Measures words a second and peak memory at three lengths, each form of half precision for some
updates, two processes where there are two GPUs, and the perplexity that WikiText-2 and Multi30k
reach in the time that is left. On a GPU the kernels of causal ABC are compiled first, for at most a
quarter of the budget.

The table is in WORK/results.md and WORK/results.json, and has what there is if this is stopped. A
further call replaces it, but keeps the prepared data. Paths are the repository's unless they begin
with a slash.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import gpu_table

ROOT = Path(__file__).parents[1]
PARTS = ("speed", "modes", "processes", "wikitext-2", "multi30k")
SYSTEMS = {
    "softmax": "--arch transformer_lm",
    "abc-32": "--arch abc_mlp_transformer_lm --abc-causal-slots 32",
    "abc-64": "--arch abc_mlp_transformer_lm --abc-causal-slots 64",
    "window-64": "--arch abc_window_transformer_lm --abc-causal-slots 64",
}
TRANSLATION = {
    "softmax": "--arch transformer",
    "abc-32-8": "--arch abc_mlp_transformer --abc-cross-slots 32 --abc-causal-slots 8",
}
TINY = (
    "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32 --encoder-ffn-embed-dim 64 "
    "--encoder-attention-heads 2 --decoder-attention-heads 2"
)
# What is imported here is what a training imports before it begins.
PROBE = """
import logging, torch, fairseq_memattn
logging.disable()
fairseq_memattn.register()
gpus = torch.cuda.device_count()
print(gpus, f"{torch.cuda.get_device_name() if gpus else 'CPU'}, torch {torch.__version__}")
"""


class Run(NamedTuple):
    """length: None for translation; share: of the time"""

    part: str
    system: str
    length: int | None
    share: int

    @property
    def name(self) -> str:
        return f"{self.part}-{self.system}-{self.length or '-'}"

    @property
    def converges(self) -> bool:
        return self.part in ("wikitext-2", "multi30k")


def planned(args: argparse.Namespace, gpus: int) -> list[Run]:
    """What ends by itself comes first and leaves time to the others."""
    short = args.lengths[0]
    runs = [Run("speed", system, length, 2) for length in args.lengths for system in SYSTEMS]
    if not args.tiny:
        modes = ("fp16", "bf16", "amp", "memory-efficient-fp16")
        runs += [Run("modes", mode, short, 1) for mode in modes]
    if not args.tiny and gpus > 1:
        runs.append(Run("processes", "abc-32", short, 1))
    runs += [Run("wikitext-2", system, short, 4) for system in SYSTEMS]
    runs += [Run("multi30k", system, None, 4) for system in TRANSLATION]
    return [run for run in runs if run.part in args.parts]


def flags_of(run: Run, args: argparse.Namespace) -> list[str]:
    """Of its model, its data and its precision."""
    precision = f"--{run.system}" if run.part == "modes" else "" if args.tiny else "--bf16"
    processes = "--distributed-world-size 2" if run.part == "processes" else ""
    size = args.size
    if run.length is None:
        text = f"""{args.work}/multi30k/bin --task translation {TRANSLATION[run.system]}
            {TINY if args.tiny else ""} --share-all-embeddings --dropout 0.1
            --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 4096
            --clip-norm 1.0"""
    else:
        text = f"""{args.work}/wikitext-2/bin --task language_modeling
            {SYSTEMS["abc-32" if run.part == "modes" else run.system]}
            --decoder-layers {args.layers} --decoder-embed-dim {size} --decoder-input-dim {size}
            --decoder-output-dim {size} --decoder-ffn-embed-dim {4 * size}
            --decoder-attention-heads {args.heads} --dropout 0.1 --decoder-normalize-before
            --adaptive-input --adaptive-input-cutoff 2000,10000
            --adaptive-softmax-cutoff 2000,10000 --tie-adaptive-weights --criterion adaptive_loss
            --ddp-backend legacy_ddp --tokens-per-sample {run.length} --sample-break-mode none
            --max-tokens {args.tokens} --clip-norm 0.5"""
    return f"{text} {precision} {processes}".split()


class Trainings:
    """Processes, which end with this one."""

    def __init__(self, args: argparse.Namespace):
        self.args, self.running = args, dict[subprocess.Popen[bytes], float]()

    def start(self, log: Path, limit: float, *flags: str) -> None:
        device = ["--cpu"] if self.args.tiny else []
        common = f"""--user-dir fairseq_memattn --seed {self.args.seed} --optimizer adam --lr 5e-4
            --lr-scheduler inverse_sqrt --warmup-updates 200 --no-save
            --required-batch-size-multiple 1 --log-format json --adam-betas"""
        command = [str(self.args.bin / "fairseq-train"), "--distributed-world-size", "1", *flags]
        command += [*device, *common.split(), "(0.9, 0.98)"]
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        self.running[process] = time.monotonic() + limit

    def wait(self) -> int:
        """The exit status of the last one, 124 where it took too long."""
        status = 0
        for process, end in self.running.items():
            try:
                status = process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.end(process)
                status = 124
        self.running.clear()
        return status

    def stop(self) -> None:
        for process in self.running:
            self.end(process)

    @staticmethod
    def end(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def compile_all(runs: Sequence[Run], trainings: Trainings, end: float) -> None:
    """Triton takes half a minute to compile the kernels of a bounded memory, and caches them.

    Four systems at a time train for one update. What is not compiled in time, the runs compile; a
    run that fails is a row of the table.
    """
    args, known = trainings.args, set()
    for run in runs:
        flags = flags_of(run, args)
        with_kernels = "--abc-causal-slots" in flags and "abc_window_transformer_lm" not in flags
        if run.part == "processes" or not with_kernels or tuple(flags) in known:
            continue
        known.add(tuple(flags))
        left = end - time.monotonic()
        if left < 1:
            break
        log = args.work / "runs" / f"compile-{run.name}.log"
        trainings.start(log, left, *flags, "--max-update", "1", "--disable-validation")
        if len(trainings.running) == 4:
            trainings.wait()
    trainings.wait()


def train(run: Run, seconds: float, left: float, starting: float, trainings: Trainings) -> None:
    """For about so many seconds, and at most for what is left."""
    args = trainings.args
    options = f"--max-update {4 if args.tiny else 30} --log-interval {1 if args.tiny else 5}"
    options, limit = f"{options} --disable-validation", 3 * seconds + 5
    if run.converges:
        options = "--max-tokens-valid 8192 --validate-interval 1000 --log-interval 10"
        limit = seconds + 5
        # The rest is for the start and the validation.
        long = seconds > 2 * starting
        seconds = (seconds - starting) * 3 / 4 if long else seconds / 3
    flags = [*flags_of(run, args), *options.split(), "--stop-time-hours", f"{seconds / 3600:.6g}"]
    began, log = time.monotonic(), args.work / "runs" / f"{run.name}.log"
    trainings.start(log, min(limit, left), *flags)
    status = trainings.wait()
    log.with_suffix(".status").write_text(f"{status} {time.monotonic() - began:.0f}\n")


def preparations(args: argparse.Namespace) -> Iterator[list[str]]:
    """The commands that make the data."""
    data, work = args.data, args.work
    if args.parts != ["multi30k"] and not (work / "wikitext-2" / "ready").exists():
        shutil.rmtree(work / "wikitext-2" / "bin", ignore_errors=True)  # of an interrupted run
        text = data / "wikitext-2"
        yield [
            *("fairseq-preprocess", "--only-source", "--trainpref", f"{text}/train.txt"),
            *("--validpref", f"{text}/valid.txt", "--destdir", f"{work}/wikitext-2/bin"),
        ]
        (work / "wikitext-2" / "ready").touch()
    if "multi30k" in args.parts:
        raw = data / "multi30k-en-de"
        yield [
            *("memattn", "prepare", "own-corpus", "--langs", "en", "de", "--output"),
            *(f"{work}/multi30k", "--vocab-size", "4000", "--text", f"train={raw}/train"),
            *(f"valid={raw}/val", f"test={raw}/test_2016_flickr"),
        ]


def measure(args: argparse.Namespace, began: float) -> None:
    """Raises ValueError for what a user can put right."""
    done = subprocess.run(
        [args.bin / "python", "-W", "ignore", "-c", PROBE], stdout=subprocess.PIPE, text=True
    )
    gpus, _, machine = done.stdout.strip().partition(" ")
    starting = 2 * (time.monotonic() - began) + 2
    if not args.tiny and gpus == "0":
        raise ValueError("torch finds no GPU; recipes/gpu.py --tiny tries the script on the CPU")
    runs = planned(args, int(gpus or 0))
    if not runs:
        raise ValueError(f"--parts {' '.join(args.parts)} has nothing that runs here")
    folder, trainings = args.work / "runs", Trainings(args)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        if args.tiny:
            print("half precision needs a GPU, and is not tried", flush=True)
        print(f"preparing the data; the log is {folder}/data.log", flush=True)
        with (folder / "data.log").open("w") as log:
            for program, *words in preparations(args):
                command = [str(args.bin / program), *words]
                if subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode:
                    raise ValueError(f"the data could not be prepared, see {folder}/data.log")
        if not args.tiny:
            print(f"compiling the kernels: at most {args.budget // 4} s", flush=True)
            compile_all(runs, trainings, time.monotonic() + args.budget / 4)
        shares = sum(run.share for run in runs)
        for run in runs:
            left = args.budget - (time.monotonic() - began) - 5  # to end, and to write the table
            if left < 5:
                break
            print(
                f"{run.part}, {run.system}, {run.length or '-'}: {left:.0f} s are left", flush=True
            )
            train(run, left * run.share / shares, left, starting, trainings)
            shares -= run.share
    finally:
        trainings.stop()
        rows = [gpu_table.read_run(folder, *run[:3]) for run in runs]
        gpu_table.write(machine, rows, args.work / "results")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Raises ValueError for values that do not fit together."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    whole = {"type": int, "metavar": "N"}
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--data", type=Path, help="has wikitext-2 and multi30k-en-de")
    parser.add_argument("--work", type=Path, default="outputs/gpu", help="default: outputs/gpu")
    parser.add_argument("--bin", type=Path, default=Path(sys.executable).parent, help="programs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", **whole, help="seconds for all of it (480, tiny: 150)")
    parser.add_argument("--layers", **whole, help="of the language models (16, tiny: 2)")
    parser.add_argument("--size", **whole, help="their width (512, tiny: 32)")
    parser.add_argument("--tokens", **whole, help="of an update of theirs (8192, tiny: 256)")
    parser.add_argument(
        "--lengths",
        nargs="+",
        help="of their inputs in the part speed; the others have "
        "the first (512 2048 8192, tiny: 32 128)",
        **whole,
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    args = parser.parse_args(argv)
    names = ("budget", "layers", "size", "tokens", "lengths", "heads")
    default = (
        (150, 2, 32, 256, [32, 128], 2) if args.tiny else (480, 16, 512, 8192, [512, 2048, 8192], 8)
    )
    for name, value in zip(names, default, strict=True):
        given = getattr(args, name, None)
        setattr(args, name, value if given is None else given)
        if min(args.lengths if name == "lengths" else [getattr(args, name)]) < 1:
            raise ValueError(f"--{name} must be 1 or more")
    if args.tokens < max(args.lengths):
        raise ValueError(f"--tokens must be at least {max(args.lengths)}, the longest input")
    if args.size % args.heads:
        raise ValueError(f"--size must be a multiple of {args.heads}, the heads")
    args.data = args.data or Path(os.environ.get("MEMATTN_DATA", "data"))
    for corpus, used in (
        ("wikitext-2", args.parts != ["multi30k"]),
        ("multi30k-en-de", "multi30k" in args.parts),
    ):
        if used and not (args.data / corpus).is_dir():
            raise ValueError(
                f"there is no folder {args.data / corpus}; --data is the folder of the corpora"
            )
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.chdir(ROOT)
    try:
        measure(arguments(argv), began)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
