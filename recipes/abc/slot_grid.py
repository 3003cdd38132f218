"""The grid of slot_grid.sh as a table and a heat map: BLEU by slots of cross and causal attention.

Reads what `memattn score` printed for each cell, FOLDER/abc-CROSS-CAUSAL-SEED.score. The table has
the mean and the standard deviation over the seeds, the heat map the mean. Cells without a score are
named, and stay empty.
"""

import argparse
import math
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_memattn.cli.shared.outputs import check_outputs
from fairseq_memattn.evaluation.fairseq_output import read_lines
from fairseq_memattn.evaluation.plots import check_format

BLEU = re.compile(r"BLEU\|(\S+) = ([0-9.]+) ")


class Grid(NamedTuple):
    """BLEU by slots.

    scores: a row for each number of causal slots; the scores of the seeds that a cell has
    missing: the runs without one; signature: sacreBLEU's, of all the others
    """

    cross: Sequence[int]
    causal: Sequence[int]
    scores: list[list[list[float]]]
    missing: list[str]
    signature: str

    def means(self) -> list[list[float]]:
        """NaN where a cell has no score."""
        return [
            [statistics.fmean(cell) if cell else math.nan for cell in row] for row in self.scores
        ]


def read_grid(
    folder: Path, seeds: Sequence[int], cross: Sequence[int], causal: Sequence[int]
) -> Grid:
    """Raises ValueError where no cell has a score, or two have different signatures."""
    signatures: dict[str, Path] = {}
    missing: list[str] = []

    def score(run: str) -> float | None:
        path = folder / f"{run}.score"
        lines = read_lines(path) if path.is_file() else []
        found = next(filter(None, map(BLEU.match, lines)), None)
        if found is None:
            missing.append(run)
            return None
        signatures[found[1]] = path
        return float(found[2])

    def cell(system: str) -> list[float]:
        scores = (score(f"{system}-{seed}") for seed in seeds)
        return [one for one in scores if one is not None]

    scores = [[cell(f"abc-{n}-{m}") for n in cross] for m in causal]
    if not signatures:
        raise ValueError(f"{folder} has no score of any of the {len(missing)} runs")
    if len(signatures) > 1:
        shown = "; ".join(f"{path.name}: {signature}" for signature, path in signatures.items())
        raise ValueError(f"cells of {folder} were scored in different ways: {shown}")
    return Grid(cross, causal, scores, missing, *signatures)


def table(grid: Grid) -> str:
    """Markdown, laid out as the paper's table 5."""
    rows = [["causal \\ cross", *map(str, grid.cross)], ["---"] * (len(grid.cross) + 1)]
    for slots, cells in zip(grid.causal, grid.scores, strict=True):
        rows.append([str(slots), *map(shown, cells)])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", f"BLEU, `{grid.signature}`", ""])


def shown(scores: Sequence[float]) -> str:
    """The mean, and the standard deviation of more than one score."""
    if not scores:
        return ""
    mean = f"{statistics.fmean(scores):.2f}"
    return mean + (f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else "")


def draw(grid: Grid, output: Path) -> None:
    """The heat map; empty cells are white."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = (2.5 + 0.8 * len(grid.cross), 1.6 + 0.6 * len(grid.causal))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    means = grid.means()
    image = axes.imshow(means, aspect="auto", cmap="viridis")
    for row, scores in enumerate(means):
        for column, score in enumerate(scores):
            if not math.isnan(score):
                _write(axes, image, column, row, score)
    axes.set_xticks(range(len(grid.cross)), grid.cross)
    axes.set_yticks(range(len(grid.causal)), grid.causal)
    axes.set(xlabel="slots of cross attention", ylabel="slots of causal attention")
    figure.colorbar(image, ax=axes, label="BLEU")
    figure.savefig(output, dpi=110)


def _write(axes: Any, image: Any, column: int, row: int, score: float) -> None:
    dark = sum(image.to_rgba(score)[:3]) < 1.5
    colour = "white" if dark else "black"
    axes.text(column, row, f"{score:.2f}", ha="center", va="center", color=colour)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of the cells' scores")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1], metavar="N", help="of the runs (default: 1)"
    )
    for side in ("cross", "causal"):
        parser.add_argument(
            f"--{side}",
            type=int,
            nargs="+",
            default=[8, 16, 32, 64],
            metavar="N",
            help=f"slots of {side} attention (default: 8 16 32 64)",
        )
    parser.add_argument("--table", type=Path, metavar="FILE", help="also write the table")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the heat map, a .png")
    return parser.parse_args()


def run(args: argparse.Namespace) -> None:
    check_outputs({"--table": args.table, "--picture": args.picture})
    if args.picture:
        check_format("--picture", args.picture)
    grid = read_grid(args.folder, args.seeds, args.cross, args.causal)
    if grid.missing:
        runs = len(args.seeds) * len(grid.cross) * len(grid.causal)
        names = ", ".join(grid.missing)
        print(f"{len(grid.missing)} of {runs} runs have no score: {names}", file=sys.stderr)
    print(table(grid), end="")
    if args.table:
        args.table.write_text(table(grid), encoding="utf-8")
    if args.picture:
        draw(grid, args.picture)


if __name__ == "__main__":
    try:
        run(arguments())
    except (OSError, ValueError) as error:
        sys.exit(f"slot_grid.py: error: {error}")
