"""Trains on one GPU for eight minutes, and ends with a table.

    python recipes/gpu.py          on a machine with a GPU
    python recipes/gpu.py --tiny   tiny models on the CPU, which shows that it works, and no more

Measures words a second and peak memory at three lengths, each form of half precision for some
updates, two processes where there are two GPUs, and the perplexity that WikiText-2 and Multi30k
reach in the time that is left. All trainings run in this process, one after another. On a GPU the
kernels of causal ABC are compiled first, for at most a quarter of the budget.

The table is in WORK/results.md and WORK/results.json, and has what there is if this is stopped. A
further call replaces it, but keeps the prepared data. Paths are the repository's unless they begin
with a slash.
"""

import argparse
import json
import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
FORMAT = 2  # of the JSON
PARTS = {
    "speed": "Words a second and peak memory",
    "modes": "Half precision, abc-32",
    "processes": "Two processes",
    "wikitext-2": "WikiText-2",
    "multi30k": "Multi30k English-German",
}
COLUMNS = {
    "system": "",
    "length": "tokens",
    "words_per_second": "words/s",
    "peak_gb": "peak GB",
    "updates": "updates",
    "seconds": "s in all",
    "train_ppl": "training perplexity",
    "valid_ppl": "validation perplexity",
    "result": "",
}
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


class Run(NamedTuple):
    """length: None for translation; share: of the time"""

    part: str
    system: str
    length: int | None
    share: int

    @property
    def name(self) -> str:
        return f"{self.part}, {self.system}, {self.length or '-'}"

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
    """Of fairseq-train."""
    precision = f"--{run.system}" if run.part == "modes" else "" if args.tiny else "--bf16"
    processes = f"--distributed-world-size {2 if run.part == 'processes' else 1}"
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
    common = f"""--user-dir fairseq_memattn --seed {args.seed} --optimizer adam --lr 5e-4
        --lr-scheduler inverse_sqrt --warmup-updates 200 --no-save --max-tokens-valid {args.tokens}
        --required-batch-size-multiple 1 --num-workers 0
        {"--cpu --max-valid-steps 5" if args.tiny else ""}"""
    return [*f"{text} {precision} {processes} {common}".split(), "--adam-betas", "(0.9, 0.98)"]


class OutOfTime(BaseException):
    """Of a training: no error of its own."""


def interrupt(*_: object) -> None:
    raise OutOfTime


def train(run: Run, seconds: float, left: float, args: argparse.Namespace) -> dict[str, Any]:
    """For about so many seconds, and at most for what is left. Returns a row of the table."""
    from gpu_training import train as run_training

    row: dict[str, Any] = {"part": run.part, "system": run.system, "length": run.length}
    file, began = args.work / "row.json", time.monotonic()
    file.unlink(missing_ok=True)
    updates = 4 if args.tiny else None if run.converges else 30
    # The rest is for the validation.
    goal = (seconds * 3 / 4 if run.converges else seconds, updates)
    try:
        signal.setitimer(signal.ITIMER_REAL, min(2 * seconds + 5, left))
        run_training(flags_of(run, args), file, *goal, run.converges)
        row["result"] = ""
    except OutOfTime:
        row["result"] = "out of time"
    except Exception as error:  # of one training
        is_memory = "out of memory" in str(error)
        row["result"] = "out of memory" if is_memory else f"failed: {error}"[:200]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for process in multiprocessing.active_children():
            process.terminate()
        row["seconds"] = round(time.monotonic() - began)
        if file.exists():
            row |= json.loads(file.read_text())
    return row


def compile_all(runs: Sequence[Run], args: argparse.Namespace, seconds: float) -> None:
    """Triton takes half a minute to compile the kernels of a bounded memory, and caches them.

    Each system trains for one update, in four processes. What is not compiled in time, the runs
    compile; a run that fails is a row of the table.
    """
    from gpu_training import train as run_training

    known = {}
    for run in runs:
        flags = flags_of(run, args)
        has_kernels = "--abc-causal-slots" in flags and "abc_window_transformer_lm" not in flags
        if has_kernels and run.part != "processes":
            known[tuple(flags)] = (flags, args.work / "compiled.json", seconds, 1, False)
    # They begin anew: a forked process cannot use a GPU that its parent has looked at.
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        pool.starmap_async(run_training, known.values(), chunksize=1).wait(seconds)


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
    import torch

    gpus = 0 if args.tiny else torch.cuda.device_count()
    if not args.tiny and not gpus:
        raise ValueError("torch finds no GPU; recipes/gpu.py --tiny tries the script on the CPU")
    machine = f"{torch.cuda.get_device_name() if gpus else 'CPU'}, torch {torch.__version__}"
    runs = planned(args, gpus)
    if not runs:
        raise ValueError(f"--parts {' '.join(args.parts)} has nothing that runs here")
    args.work.mkdir(parents=True, exist_ok=True)
    rows = [
        {"part": run.part, "system": run.system, "length": run.length, "result": "not run"}
        for run in runs
    ]
    try:
        if args.tiny:
            print("half precision needs a GPU, and is not tried", flush=True)
        log = args.work / "data.log"
        print(f"preparing the data; the log is {log}", flush=True)
        with log.open("w") as file:
            for program, *words in preparations(args):
                command = [str(Path(sys.executable).parent / program), *words]
                if subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode:
                    raise ValueError(f"the data could not be prepared, see {log}")
        if gpus:
            print(f"compiling the kernels: at most {args.budget // 4} s", flush=True)
            compile_all(runs, args, args.budget / 4)
        shares = sum(run.share for run in runs)
        for place, run in enumerate(runs):
            left = args.budget - (time.monotonic() - began) - 5  # to end, and to write the table
            if left < 5:
                break
            print(f"{run.name}: {left:.0f} s are left", flush=True)
            rows[place] = train(run, left * run.share / shares, left, args)
            shares -= run.share
    finally:
        write(machine, rows, args.work / "results")


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value or "").replace("|", "\\|")


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown; columns that are empty are left out."""
    columns = {key: head for key, head in COLUMNS.items() if any(row.get(key) for row in rows)}
    lines = [list(columns.values()), ["---"] * len(columns)]
    lines += [[shown(row.get(key)) for key in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(machine: str, rows: list[dict[str, Any]], output: Path) -> None:
    """OUTPUT.md and OUTPUT.json, and the former on the screen."""
    parts = [machine]
    for part, title in PARTS.items():
        if of_part := [row for row in rows if row["part"] == part]:
            parts += [f"## {title}", table(of_part)]
    page = "\n\n".join(parts) + "\n"
    report = {"format": FORMAT, "machine": machine, "runs": rows}
    output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    output.with_suffix(".md").write_text(page, "utf-8")
    print(f"\n{page}")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Raises ValueError for values that do not fit together."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    whole = {"type": int, "metavar": "N"}
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--data", type=Path, help="has wikitext-2 and multi30k-en-de")
    parser.add_argument(
        "--work", type=Path, default=Path("outputs/gpu"), help="default: outputs/gpu"
    )
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
    signal.signal(signal.SIGALRM, interrupt)
    logging.disable()
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
