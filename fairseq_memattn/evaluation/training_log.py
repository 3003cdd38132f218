"""What fairseq-train has logged: losses and other measures by updates."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_memattn.evaluation.plots import DPI

Row = dict[str, float]  # measures by their names, num_updates among them

# A line of the standard output begins with the time and `| INFO | train_inner |`, one of --log-file
# does not. With the formats `simple` and `tqdm` it goes on, in training, at the end of an epoch and
# in validation:
#   epoch 001:    100 / 510 loss=10.9, ppl=1976.93, ..., num_updates=100, ...
#   epoch 001 | loss 9.1 | ... | num_updates 510 | ...
#   epoch 001 | valid on 'valid' subset | loss 8.3 | ... | num_updates 500
# and with `json`:
#   {"epoch": 1, "loss": "10.9", "num_updates": "100", ...}
#   {"epoch": 1, "train_loss": "9.1", "train_num_updates": "510", ...}
#   {"epoch": 1, "valid_loss": "8.3", "valid_num_updates": "500", ...}
# fairseq-hydra-train begins lines with `[time][train_inner][INFO] - `.
LOGGER = re.compile(r"^(?:.*?\| INFO \| [\w.-]+ \| |\[[^\]]*\]\[[\w.-]+\]\[INFO\] - )")
STEP = re.compile(r"epoch \d+: +\d+ / \d+ (.*)")
EPOCH = re.compile(r"epoch \d+ \| (?:valid on '([^']+)' subset \| )?(.*)")
PAIR = re.compile(r"(\w+)[= ](-?(?:\d[\d.]*(?:e[-+]?\d+)?|inf|nan))(?=,| \||\s*$)")
COUNT = "num_updates"
TRAINING = ("train_inner", "train")
# Of the progress of a training, and not of the quality of its model.
PROGRESS = {
    *("epoch", "update", "num_updates", "wps", "ups", "wpb", "bsz", "lr", "gnorm", "clip"),
    *("train_wall", "wall", "gb_free", "loss_scale", "oom"),
}


class TrainingLog(NamedTuple):
    """A training.

    train: what was logged every --log-interval updates, or at the end of each epoch if nothing was
    valid: by the name of the subset
    """

    name: str
    train: list[Row]
    valid: dict[str, list[Row]]


def read_training_log(name: str, path: Path) -> TrainingLog:
    """Reads --log-file, or what fairseq-train or fairseq-hydra-train has printed.

    A training that was resumed has logged some updates twice; the later lines count.

    Raises ValueError for a file without a line of progress.
    """
    rows: dict[str, list[Row]] = {}
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            who, row = _read_line(LOGGER.sub("", line))
            if COUNT in row and "loss" in row:
                earlier = rows.setdefault(who, [])
                while earlier and earlier[-1][COUNT] >= row[COUNT]:
                    earlier.pop()
                earlier.append(row)
    if not rows:
        raise ValueError(
            f"--training {path} must be a log of fairseq-train (--log-file), but no line has the "
            "loss after a number of updates"
        )
    training = next((rows[who] for who in TRAINING if who in rows), [])
    return TrainingLog(name, training, {k: v for k, v in rows.items() if k not in TRAINING})


def measures(log: TrainingLog) -> list[str]:
    """The measures of the model on validation sets, besides losses and perplexities."""
    names = dict.fromkeys(name for rows in log.valid.values() for row in rows for name in row)
    left_out = PROGRESS | {"ppl"}
    return [n for n in names if n not in left_out and not n.startswith("best_") and "loss" not in n]


def best(rows: list[Row], measure: str, lowest: bool) -> tuple[float, int] | None:
    """The best value of a measure and the number of updates after which it was found.

    Values that are no numbers, of a training that diverged, are left out.
    """
    found = [(row[measure], int(row[COUNT])) for row in rows if measure in row]
    found = [pair for pair in found if not math.isnan(pair[0])]
    return (min if lowest else max)(found, key=lambda pair: pair[0], default=None)


def _read_line(line: str) -> tuple[str, Row]:
    """One of TRAINING, or the name of a validation set, and the measures; none in other lines."""
    if line.startswith("{"):
        return _read_json(line)
    if step := STEP.match(line):
        return TRAINING[0], _numbers(PAIR.findall(step[1]))
    if epoch := EPOCH.match(line):
        return epoch[1] or TRAINING[1], _numbers(PAIR.findall(epoch[2]))
    return "", {}


def _read_json(line: str) -> tuple[str, Row]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return "", {}  # a line that was cut off, or no log
    who = next((key.removesuffix(f"_{COUNT}") for key in fields if key.endswith(f"_{COUNT}")), "")
    pairs = [(key.removeprefix(f"{who}_") if who else key, fields[key]) for key in fields]
    return who or TRAINING[0], _numbers(pairs)


def _numbers(pairs: Iterable[tuple[str, object]]) -> Row:
    return {key: number for key, value in pairs if (number := _number(value)) is not None}


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 5.0, 3.6, 3  # inches; panels in a row
FEW = 30
VALIDATION, IN_TRAINING = "validation", "training"
# The markers of training are rings, within which those of a validation at the same point are seen.
STYLES: dict[str, dict[str, Any]] = {
    VALIDATION: {"linestyle": "-", "markersize": 3.5},
    IN_TRAINING: {"linestyle": "--", "linewidth": 1.0, "markersize": 6, "markerfacecolor": "none"},
}
FURTHER = {"linestyle": ":", "markersize": 3.5}  # of further validation sets


def draw_trainings(logs: Sequence[TrainingLog], output: Path) -> None:
    """A panel for the loss and for every other measure of the validation; a colour for each run.

    The loss in training is drawn as well. The legend has every curve as it is drawn; the name of a
    single run is the title.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    names = list(dict.fromkeys(["loss", *(name for log in logs for name in measures(log))]))
    columns, rows = min(len(names), COLUMNS), -(-len(names) // COLUMNS)
    entries = sum(len(_curves(log)) for log in logs) // columns + 1
    size = (PANEL_WIDTH * columns, PANEL_HEIGHT * rows + 0.25 * entries)
    figure = Figure(dpi=DPI, figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    shown: dict[str, Any] = {}
    # fairseq computes perplexities from losses in base 2. Other losses may have no base, such as
    # that of `attention_transfer`.
    with_base = [any("ppl" in row for _, rows in _curves(log) for row in rows) for log in logs]
    loss = "loss (base 2)" if all(with_base) else "loss"
    for axes, measure in zip(panels, names, strict=False):
        for number, log in enumerate(logs):
            for kind, found in _curves(log):
                label = f"{log.name}: {kind}" if len(logs) > 1 else kind
                if measure == "loss" or kind != IN_TRAINING:
                    style = STYLES.get(kind, FURTHER) | {"color": f"C{number}", "label": label}
                    shown.setdefault(label, _draw(axes, found, measure, **style))
        axes.set_ylabel(loss if measure == "loss" else measure)
        axes.set_xlabel("updates")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    for axes in figure.axes[len(names) :]:
        axes.set_axis_off()
    legend = figure.legend(handles=[*shown.values()], loc="outside lower center", ncols=columns)
    for text in legend.get_texts():
        text.set_parse_math(False)  # it would read names between dollar signs as a formula
    if len(logs) == 1:
        figure.suptitle(logs[0].name, parse_math=False)
    figure.savefig(output)


def _curves(log: TrainingLog) -> list[tuple[str, list[Row]]]:
    """The rows of each validation set and of training, with a name. The first set is VALIDATION."""
    names = [VALIDATION, *list(log.valid)[1:]]
    validation = list(zip(names, log.valid.values(), strict=False))
    return [*validation, (IN_TRAINING, log.train)] if log.train else validation


def _draw(axes: Any, rows: Sequence[Row], measure: str, **style: Any) -> Any:
    """A line, with a marker for each of few points, so that a single one is seen, too."""
    found = [row for row in rows if measure in row]
    updates, values = ([row[name] for row in found] for name in (COUNT, measure))
    (line,) = axes.plot(updates, values, marker="o" if len(found) < FEW else None, **style)
    return line
