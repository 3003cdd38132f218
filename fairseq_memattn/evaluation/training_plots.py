"""Plots of the losses and other measures of trainings."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_memattn.evaluation.plots import DPI
from fairseq_memattn.evaluation.training_log import Row, TrainingLog, measures

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

PANEL_WIDTH, PANEL_HEIGHT = 5.0, 3.6  # inches
FEW = 30
VALIDATION, FURTHER, TRAINING = "validation", "further validation sets", "training"
# The markers of training are rings, within which those of a validation at the same point are seen.
STYLES: dict[str, dict[str, Any]] = {
    VALIDATION: {"linestyle": "-", "markersize": 3.5},
    FURTHER: {"linestyle": ":", "markersize": 3.5},
    TRAINING: {"linestyle": "--", "linewidth": 1.0, "markersize": 6, "markerfacecolor": "none"},
}


def draw_trainings(logs: Sequence[TrainingLog], output: Path) -> None:
    """A panel for the loss and for every other measure of the validation; a colour for each run.

    The loss in training is drawn as well. The legend names the kinds of curves and, where there
    are several, the runs; the name of a single run is the title.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    panels = list(dict.fromkeys(["loss", *(name for log in logs for name in measures(log))]))
    size = (PANEL_WIDTH * len(panels), PANEL_HEIGHT)
    figure = Figure(dpi=DPI, figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, measure in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        for number, log in enumerate(logs):
            for kind, rows in _curves(log):
                if kind != TRAINING or measure == "loss":
                    _draw(axes, rows, measure, color=f"C{number}", **STYLES[kind])
        axes.set_ylabel(_loss_label(logs) if measure == "loss" else measure)
        axes.set_xlabel("updates")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    # parse_math would read names between dollar signs as a formula.
    for text in figure.axes[0].legend(handles=_handles(logs)).get_texts():
        text.set_parse_math(False)
    if len(logs) == 1:
        figure.suptitle(logs[0].name, parse_math=False)
    figure.savefig(output)


def _curves(log: TrainingLog) -> list[tuple[str, list[Row]]]:
    """The rows of training and of each validation set, with the key of their style."""
    kinds = [VALIDATION, *[FURTHER] * len(log.valid)]
    validation = list(zip(kinds, log.valid.values(), strict=False))
    return [*validation, (TRAINING, log.train)] if log.train else validation


def _loss_label(logs: Sequence[TrainingLog]) -> str:
    """Names the base if all logs have perplexities, which fairseq computes from losses in base 2.

    Other losses may have no base, such as that of `attention_transfer`.
    """
    with_base = [any("ppl" in row for _, rows in _curves(log) for row in rows) for log in logs]
    return "loss (base 2)" if all(with_base) else "loss"


def _handles(logs: Sequence[TrainingLog]) -> "list[Line2D]":
    """The lines in the legend: one for each of several runs, and one for each kind of curve."""
    from matplotlib.lines import Line2D

    curves = [curve for log in logs for curve in _curves(log)]
    if len(logs) == 1:
        names, colour = [], "C0"
    else:
        names = [Line2D([], [], color=f"C{i}", label=log.name) for i, log in enumerate(logs)]
        colour = "0.3"
    kinds = [
        Line2D([], [], color=colour, label=kind, marker=_marker(any(few)), **STYLES[kind])
        for kind in STYLES
        if (few := [len(rows) < FEW for own, rows in curves if own == kind])
    ]
    return names + kinds


def _draw(axes: Any, rows: Sequence[Row], measure: str, **style: Any) -> None:
    """A line, with a marker for each of few points, so that a single one is seen, too."""
    points = _points(rows, measure)
    axes.plot(*points, marker=_marker(len(points[0]) < FEW), **style)


def _marker(shown: bool) -> str | None:
    return "o" if shown else None


def _points(rows: Sequence[Row], measure: str) -> tuple[list[float], list[float]]:
    found = [(row["num_updates"], row[measure]) for row in rows if measure in row]
    return [x for x, _ in found], [y for _, y in found]
