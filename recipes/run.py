"""Runs the experiments of recipes/ over systems and seeds, and ends with a table.

    python recipes/run.py                            lists them
    python recipes/run.py abc/multi30k --help        its systems and settings
    python recipes/run.py abc/multi30k --systems softmax abc-16-16 --seeds 1 --set updates=500
    python recipes/run.py abc/multi30k --dry-run     the commands, to read or to copy

A stage that is done is not done again, and a training that stopped goes on. A folder that has a
stage with other settings is refused. Paths are the repository's unless they begin with a slash. An
experiment is a file recipes/FOLDER/experiments/NAME.yaml; runner/experiment.py describes its keys.
"""

import argparse
import glob
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner import stages
from runner.experiment import ROOT, Experiment, RecipeError, Stage, paths, read


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
    )
    parser.add_argument("experiment", nargs="?")
    parser.add_argument("--systems", nargs="+", help="in the order of the table")
    parser.add_argument("--seeds", nargs="+", type=int, help="of the trainings")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings")
    parser.add_argument("--work", help="folder of the results")
    parser.add_argument("--data", help="folder of the corpora (default: $MEMATTN_DATA, or data)")
    parser.add_argument(
        "--device", help="flags of fairseq, such as --device=--fp16; empty for fp32 on a GPU"
    )
    parser.add_argument("--bin", type=Path, help="folder of the programs")
    parser.add_argument(
        "--dry-run", action="store_true", help="show the commands that are to be run"
    )
    parser.add_argument("-h", "--help", action="store_true", help="of all, or of the experiment")
    return parser


def settings(given: Sequence[str]) -> dict[str, str]:
    """Raises RecipeError for anything but NAME=VALUE."""
    for pair in given:
        if "=" not in pair:
            raise RecipeError(f"--set takes NAME=VALUE, such as updates=500, but has {pair}")
    return dict(pair.split("=", 1) for pair in given)


def about(name: str) -> str:
    """The help of an experiment."""
    experiment = Experiment(name, {}, corpora="data", device=["--cpu"])
    parts = [
        f"{name}: {experiment.data['about'].strip()}",
        "settings, which --set NAME=VALUE changes:",
    ]
    for key, setting in experiment.settings.items():
        value, choices = setting["default"], ", ".join(setting.get("choices", []))
        value = " ".join(map(str, value)) if isinstance(value, list) else value
        parts[-1] += f"\n  {key}={value}" + (f", one of {choices}" if choices else "")
    patterns = (p + experiment.data.get("suffix", "") for p in experiment.data["systems"])
    parts.append(
        f"systems: {', '.join(patterns)}\ndefault: {' '.join(experiment.default_systems())}"
        f"\nseeds: {' '.join(map(str, experiment.default_seeds))}"
    )
    return "\n\n".join(parts)


def plan(
    experiment: Experiment, systems: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[str, list[Stage]]]:
    """The stages with their titles: what runs once, and then each system and seed."""
    yield experiment.name, experiment.prepare()
    for seed in seeds:
        for system in systems:
            yield f"{experiment.name}, {system}, seed {seed}", experiment.run(system, seed)


def check(
    experiment: Experiment,
    parts: Sequence[tuple[str, list[Stage]]],
    systems: Sequence[str],
    seeds: Sequence[int],
) -> None:
    """Before the first command. Raises RecipeError where there is something to put right."""
    if all(stages.is_done(stage) for _, part in parts for stage in part):
        return
    for seed in seeds:
        for system in systems:
            for path in experiment.needs(experiment.run_scope(system, seed)):
                if not glob.glob(path):
                    raise RecipeError(f"there is no {path}; --data is the folder of the corpora")


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = arguments()
    args = parser.parse_args(argv)
    os.chdir(ROOT)
    try:
        if not args.experiment:
            print(parser.format_help() if args.help else listing(), end="")
            return 0
        if args.help:
            print(about(args.experiment))
            return 0
        run(args)
    except RecipeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def listing() -> str:
    """The experiments, with the first sentence about each."""
    known = {name: read(path)["about"] for name, path in paths().items()}
    width = max(map(len, known))
    return "".join(f"{name:{width}}  {text.split('.')[0]}\n" for name, text in known.items())


def run(args: argparse.Namespace) -> None:
    corpora = args.data or os.environ.get("MEMATTN_DATA") or "data"
    device = ["--cpu"] if args.device is None else shlex.split(args.device)
    experiment = Experiment(
        args.experiment, settings(args.set), work=args.work, corpora=corpora, device=device
    )
    systems, seeds = (
        args.systems or experiment.default_systems(),
        args.seeds or experiment.default_seeds,
    )
    parts = list(plan(experiment, systems, seeds))
    after = list(experiment.stages(experiment.scope(systems=systems, seeds=seeds), "after"))
    programs = args.bin or Path(sys.executable).parent
    if args.dry_run:
        for title, part in [*parts, ("after", after)]:
            print(f"# {title}")
            for stage in part:
                print(stages.shown(stage))
        return
    check(experiment, parts, systems, seeds)
    if not (programs / "fairseq-train").exists():
        raise RecipeError(f"there is no fairseq-train in {programs}; run make env, or give --bin")
    for title, part in parts:
        stages.run(part, programs, title)
    if "table" in experiment.data:
        from runner import table

        table.write(experiment, systems, seeds)
    for stage in after:
        if stages.execute(stage, programs):
            raise RecipeError(f"this failed: {stages.shown(stage)}")


if __name__ == "__main__":
    sys.exit(main())
