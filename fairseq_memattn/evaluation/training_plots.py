"""Plots of the losses and other measures of trainings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_memattn.evaluation.plots import DPI
from fairseq_memattn.evaluation.training_log import Row, TrainingLog, measures

PANEL_WIDTH, PANEL_HEIGHT = 5.0, 3.6  # inches
FEW = 30


def draw_trainings(logs: Sequence[TrainingLog], output: Path) -> None:
    """A panel for the loss and for every other measure of the validation; a colour for each run.

    Dashed lines are the loss in training. Further validation sets than the first have dotted lines.
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
            colour, label = f"C{number}", log.name
            if measure == "loss":
                _draw(axes, log.train, measure, color=colour, linestyle="--", linewidth=1)
            for style, rows in zip(
                ["-", *[":"] * len(log.valid)], log.valid.values(), strict=False
            ):
                _draw(axes, rows, measure, color=colour, linestyle=style, label=label)
                label = ""
            if label and measure == "loss":  # a training without validation
                axes.plot([], [], color=colour, linestyle="--", label=label)
        axes.set_title(f"{measure} (dashed: in training)" if measure == "loss" else measure)
        axes.set_xlabel("updates")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    # parse_math would read names between dollar signs as a formula.
    for text in figure.axes[0].legend().get_texts():
        text.set_parse_math(False)
    figure.savefig(output)


def _draw(axes: Any, rows: Sequence[Row], measure: str, **style: Any) -> None:
    """A line, with a marker for each of few points, so that a single one is seen, too."""
    points = _points(rows, measure)
    axes.plot(*points, marker="o" if len(points[0]) < FEW else None, markersize=3, **style)


def _points(rows: Sequence[Row], measure: str) -> tuple[list[float], list[float]]:
    found = [(row["num_updates"], row[measure]) for row in rows if measure in row]
    return [x for x, _ in found], [y for _, y in found]
