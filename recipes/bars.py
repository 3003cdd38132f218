"""A picture of means and standard deviations, for docs/results.md.

    python recipes/bars.py --output FILE.png --label sacreBLEU softmax=32.3,30.4,31.9 abc=31.6±0.8

A bar is the mean of the values of several seeds, or a MEAN±SD; its error bar is the standard
deviation. The mean is at the end of its row. The axis begins at --from, by default a little below
the smallest value, but not below 0 where no value is. Where it does not begin at 0, points stand in
place of bars, whose lengths would mislead. Where the label has "%", it ends at 100 at most.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_memattn.cli.shared.outputs import check_outputs
from fairseq_memattn.evaluation.plots import check_format

COLOUR = "#0072B2"


class Bar(NamedTuple):
    """A mean and its standard deviation."""

    name: str
    mean: float
    spread: float


def finite(text: str) -> float:
    """Raises ValueError for anything but a finite number."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not finite")
    return number


def read_bar(given: str) -> Bar:
    """Raises ValueError for anything but NAME=V,V,... and NAME=MEAN±SD."""
    name, equals, values = given.rpartition("=")
    try:
        if "±" in values:
            mean, spread = map(finite, values.split("±"))
        else:
            numbers = [finite(number) for number in values.split(",")]
            mean = statistics.fmean(numbers)
            spread = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
    except ValueError:
        equals = ""
    if not (name and equals):
        raise ValueError(
            f"a bar must be NAME=V,V,... or NAME=MEAN±SD, of finite numbers, but is {given!r}"
        )
    return Bar(name, mean, spread)


def draw(bars: Sequence[Bar], label: str, start: float | None, output: Path) -> None:
    """Horizontal bars, the first one above; points where the axis does not begin at 0."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    axis = limits(bars, label, start)
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
    what, newline, note = label.partition("\n")
    axes.set_yticks(rows, [bar.name for bar in bars])
    axes.set(xlim=axis, ylim=(len(bars) - 0.4, -0.6), xlabel=f"{what} (mean ± SD){newline}{note}")
    figure.savefig(output, dpi=110)


def limits(bars: Sequence[Bar], label: str, start: float | None) -> tuple[float, float]:
    """Of the axis. Percentages end at 100."""
    lowest, highest = min(b.mean - b.spread for b in bars), max(b.mean + b.spread for b in bars)
    room = (highest - lowest or abs(highest) or 1.0) / 4
    if start is None:
        start = lowest - room if min(bar.mean for bar in bars) < 0 else max(0.0, lowest - room)
    end = highest + room
    return start, min(end, 100.0) if "%" in label and max(b.mean for b in bars) <= 100 else end


def shown(means: Sequence[float], label: str) -> list[str]:
    """As the tables show them: large numbers and percentages with one decimal."""
    digits = 1 if "%" in label or max(map(abs, means)) >= 100 else 2
    return [f"{mean:.{digits}f}" if abs(mean) < 1e6 else f"{mean:.3g}" for mean in means]


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bars", nargs="+", metavar="NAME=VALUES")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument(
        "--label", required=True, help="what the values are; notes on further lines"
    )
    parser.add_argument("--from", dest="start", type=float, help="where the axis begins")
    args = parser.parse_args(argv)
    try:
        check_format("--output", args.output)
        check_outputs({"--output": args.output}, [])
        bars = [read_bar(given) for given in args.bars]
        if len({bar.name for bar in bars}) < len(bars):
            raise ValueError("each bar must have a name of its own")
        draw(bars, args.label, args.start, args.output)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
