"""Table 5 of the paper: BLEU by slots of cross and causal attention, as a table and a heat map.

    python recipes/abc/slot_grid.py outputs/abc/slot_grid_cells.json --output outputs/abc/slot_grid

Reads what recipes/run.py has written, with systems abc-CROSS-CAUSAL. The table, OUT.md, has the
mean and the standard deviation over the seeds, the heat map, OUT.png, the mean.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from runner.table import markdown, shown  # noqa: E402

Grid = dict[int, dict[int, list[float]]]  # the seeds' scores by causal and cross slots


def read(path: Path) -> Grid:
    grid: Grid = {}
    for system, columns in json.loads(path.read_text(encoding="utf-8"))["scores"].items():
        cross, causal = map(int, system.removeprefix("abc-").split("-"))
        grid.setdefault(causal, {})[cross] = list(columns["BLEU"].values())
    return grid


def table(grid: Grid) -> str:
    """Markdown, laid out as the paper's."""
    rows = [["causal \\ cross", *map(str, next(iter(grid.values())))]]
    rows += [[str(causal), *map(shown, cells.values())] for causal, cells in grid.items()]
    return markdown(rows)


def draw(grid: Grid, output: Path) -> None:
    """The heat map."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cross = list(next(iter(grid.values())))
    figure = Figure(figsize=(2.5 + 0.8 * len(cross), 1.6 + 0.6 * len(grid)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    means = [[statistics.fmean(cell) for cell in row.values()] for row in grid.values()]
    image = axes.imshow(means, aspect="auto", cmap="viridis")
    for row, scores in enumerate(means):
        for column, score in enumerate(scores):
            _write(axes, image, column, row, score)
    axes.set_xticks(range(len(cross)), cross)
    axes.set_yticks(range(len(grid)), list(grid))
    axes.set(xlabel="slots of cross attention", ylabel="slots of causal attention")
    figure.colorbar(image, ax=axes, label="BLEU")
    figure.savefig(output, dpi=110)


def _write(axes: Any, image: Any, column: int, row: int, score: float) -> None:
    dark = sum(image.to_rgba(score)[:3]) < 1.5
    colour = "white" if dark else "black"
    axes.text(column, row, f"{score:.2f}", ha="center", va="center", color=colour)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scores", type=Path, help="the JSON of the experiment")
    parser.add_argument("--output", type=Path, required=True, help="without a suffix")
    args = parser.parse_args()
    grid = read(args.scores)
    args.output.with_name(f"{args.output.name}.md").write_text(table(grid), encoding="utf-8")
    draw(grid, args.output.with_name(f"{args.output.name}.png"))
    print(table(grid), end="")


if __name__ == "__main__":
    main()
