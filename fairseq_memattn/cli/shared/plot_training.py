"""`memattn plot --training`: draws the losses and other measures of one or several trainings."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from fairseq_memattn.cli.shared.inputs import named_file
from fairseq_memattn.cli.shared.outputs import check_outputs
from fairseq_memattn.evaluation.plots import check_format
from fairseq_memattn.evaluation.tables import table
from fairseq_memattn.evaluation.training_log import (
    TrainingLog,
    best,
    draw_trainings,
    measures,
    read_training_log,
)
from fairseq_memattn.files import replacing, write_json


def run(args: argparse.Namespace) -> None:
    paths = named_logs(args.training)
    check_outputs({"--output": args.output, "--json": args.json}, list(paths.values()))
    check_format("--output", args.output)
    logs = [read_training_log(name, path) for name, path in paths.items()]
    with replacing(args.output) as unfinished:
        draw_trainings(logs, unfinished)
    if args.json:
        write_json(args.json, [log._asdict() for log in logs])
    print(table(summary(logs)))
    print(f"drew {args.output}")


def named_logs(given: Sequence[str]) -> dict[str, Path]:
    """The files by their names; a file without one has that of its folder.

    It has its own where several files are of one folder, and where the folder is the root.
    """
    files = [named_file("--training", one) for one in given]
    folders = [path.parent.resolve() for _, path in files]
    paths: dict[str, Path] = {}
    for one, (name, path), folder in zip(given, files, folders, strict=True):
        alone = folders.count(folder) == 1
        name = name or (alone and folder.name) or path.stem
        if not path.is_file():
            raise ValueError(f"--training {one}: there is no file {path}")
        if name in paths:
            raise ValueError(
                f"--training {one}: {name} is the name of {paths[name]} as well; give NAME=LOG"
            )
        paths[name] = path
    return paths


def summary(logs: Sequence[TrainingLog]) -> list[list[str]]:
    """The last training loss, and the best of each measure of the first validation set."""
    names = list(dict.fromkeys(name for log in logs for name in measures(log)))
    rows = [["", "updates", "loss in training", "best loss", *(f"best {name}" for name in names)]]
    for log in logs:
        valid = next(iter(log.valid.values()), [])
        ends = [row["num_updates"] for row in [*log.train[-1:], *valid[-1:]]]
        loss = f"{log.train[-1]['loss']:g}" if log.train else ""
        found = [best(valid, "loss", True), *(best(valid, n, lower_is_better(n)) for n in names)]
        cells = [f"{pair[0]:g} after {pair[1]}" if pair else "" for pair in found]
        rows.append([log.name, f"{max(ends):.0f}", loss, *cells])
    return rows


def lower_is_better(measure: str) -> bool:
    return "error" in measure
