"""A picture of means and standard deviations, for docs/results.md.

    python recipes/bars.py --output FILE.png --label sacreBLEU softmax=32.3,30.4,31.9 abc=31.6±0.8

A bar is the mean of the values of several seeds, or a MEAN±SD; its error bar is the standard
deviation.
The axis begins at --from, by default a little below the smallest value, but not below 0 where no
value is.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_memattn.cli.outputs import check_outputs
from fairseq_memattn.evaluation.plots import check_format


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
    """Horizontal bars, the first one above."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lowest, highest = min(b.mean - b.spread for b in bars), max(b.mean + b.spread for b in bars)
    room = (highest - lowest or abs(highest) or 1.0) / 4
    figure = Figure(figsize=(7, 1 + 0.35 * len(bars)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names = [bar.name for bar in bars]
    axes.barh(names, [bar.mean for bar in bars], xerr=[bar.spread for bar in bars], capsize=3)
    axes.invert_yaxis()
    if start is None:
        start = lowest - room if min(bar.mean for bar in bars) < 0 else max(0.0, lowest - room)
    axes.set(xlim=(start, highest + room), xlabel=label)
    figure.savefig(output, dpi=110)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bars", nargs="+", metavar="NAME=VALUES")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--label", required=True, help="what the values are")
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
