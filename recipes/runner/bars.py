"""A picture of means and standard deviations over the seeds.

The mean is at the end of its row. The axis begins a little below the smallest value, but not below
0 where no value is. Where it does not begin at 0, points stand in place of bars, whose lengths
would mislead. Where the label has "%", it ends at 100 at most.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

COLOUR = "#0072B2"


class Bar(NamedTuple):
    """A mean and its standard deviation."""

    name: str
    mean: float
    spread: float


def draw(bars: Sequence[Bar], label: str, output: Path) -> None:
    """Horizontal bars, the first one above; points where the axis does not begin at 0."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    axis = limits(bars, label)
    figure = Figure(figsize=(8, 1 + 0.35 * len(bars)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="0.9")
    rows = range(len(bars))
    means, spreads = [bar.mean for bar in bars], [bar.spread for bar in bars]
    if axis[0] == 0:
        axes.barh(rows, means, xerr=spreads, capsize=3, color=COLOUR)
    else:
        points = axes.errorbar(means, rows, xerr=spreads, fmt="o", capsize=3, color=COLOUR)
        points[0].set_clip_on(False)  # a point at the end of the axis is whole
    for row, text in enumerate(shown(means, label)):
        axes.annotate(
            text,
            (1, row),
            (6, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center_baseline",
        )
    axes.set_yticks(rows, [bar.name for bar in bars])
    axes.set(xlim=axis, ylim=(len(bars) - 0.4, -0.6), xlabel=f"{label} (mean ± SD)")
    figure.savefig(output, dpi=110)


def limits(bars: Sequence[Bar], label: str) -> tuple[float, float]:
    """Of the axis. Percentages end at 100."""
    lowest, highest = min(b.mean - b.spread for b in bars), max(b.mean + b.spread for b in bars)
    room = (highest - lowest or abs(highest) or 1.0) / 4
    start = lowest - room if min(bar.mean for bar in bars) < 0 else max(0.0, lowest - room)
    end = highest + room
    return start, min(end, 100.0) if "%" in label and max(b.mean for b in bars) <= 100 else end


def shown(means: Sequence[float], label: str) -> list[str]:
    """As the tables show them: large numbers and percentages with one decimal."""
    digits = 1 if "%" in label or max(map(abs, means)) >= 100 else 2
    return [f"{mean:.{digits}f}" if abs(mean) < 1e6 else f"{mean:.3g}" for mean in means]
