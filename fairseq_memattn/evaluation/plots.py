"""Plots of control vectors, of read weights, and of the weights of a sequence selector."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

# Sizes in inches. A token, a slot and a sentence have these sizes unless the panels would exceed
# their maximum.
TOKEN_WIDTH, SLOT_HEIGHT, SENTENCE_HEIGHT = 0.24, 0.13, 0.3
NARROW_WIDTH = 0.14  # of a token where there are several panels
MAX_WIDTH, MAX_HEIGHT = 14.0, 60.0  # of the panels beside, or above, each other
MAX_ROWS = 24  # of panels
GAP = 0.5  # between panels
LETTER_WIDTH = 0.065  # of labels
MIN_LABELLED_WIDTH = 0.12  # of a token; the labels of narrower tokens would overlap
DPI = 110
LONGEST = 40  # characters of the label of a sentence
MIN_SCALE = 3  # times a uniform weight, the least end of a colour scale


class Memories(NamedTuple):
    """The control vectors and read weights of some layers and heads.

    layers, heads: their numbers
    writers: the S tokens that are written into the memory
    readers: the T tokens whose queries read the memory
    writing: phi (layers, heads, S, M), the weight of each token in each slot
    reading: p (layers, heads, T, M), the weight of each slot for each query
    """

    layers: Sequence[int]
    heads: Sequence[int]
    writers: Sequence[str]
    readers: Sequence[str]
    writing: "Tensor"
    reading: "Tensor"

    def as_lists(self) -> list[dict[str, Any]]:
        """A dictionary for each layer and head, for JSON."""
        return [
            {
                "layer": layer,
                "head": head,
                "writing": self.writing[row, column].tolist(),
                "reading": self.reading[row, column].tolist(),
            }
            for row, layer in enumerate(self.layers)
            for column, head in enumerate(self.heads)
        ]


class Selection(NamedTuple):
    """The weights of a sequence selector.

    layers: their numbers; None if all layers share one selection
    sentences: the K sequences, the current one last
    readers: the T target tokens
    weights: (layers or 1, T, K), the weight of each sequence for each target token
    """

    layers: Sequence[int] | None
    sentences: Sequence[str]
    readers: Sequence[str]
    weights: "Tensor"

    def as_dict(self) -> dict[str, Any]:
        return self._asdict() | {"weights": self.weights.tolist()}


def check_format(option: str, path: Path) -> None:
    """Raises ValueError unless the file name ends with a format that matplotlib writes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if path.suffix.removeprefix(".") not in FigureCanvasAgg.get_supported_filetypes():
        raise ValueError(f"{option} must end with .png or another image format, but is {path}")


class Grid(NamedTuple):
    """Where panels of equal texts are drawn.

    columns: the panels in a row
    lines: the tokens of each row of a panel, which is wrapped if there are several
    width: of a panel, in inches
    """

    columns: int
    lines: list[range]
    width: float

    @property
    def labelled(self) -> bool:
        return self.width / len(self.lines[0]) >= MIN_LABELLED_WIDTH

    def label_height(self, tokens: Sequence[str]) -> float:
        """Of the upright labels of the tokens."""
        return LETTER_WIDTH * max(map(len, tokens)) if self.labelled else 0.2


def make_grid(layers: int, heads: int, tokens: int) -> Grid:
    """The grid for a panel of each layer and head.

    A text that is wider than MAX_WIDTH is wrapped, and so is a row of heads. The tokens become
    narrower where there would be more than MAX_ROWS rows.
    """
    panels = layers * heads
    size = TOKEN_WIDTH if panels == 1 else NARROW_WIDTH
    wrapped = max(1, min(ceil(tokens * size / MAX_WIDTH), MAX_ROWS // panels))
    length = ceil(tokens / wrapped)
    beside = int((MAX_WIDTH + GAP) / (length * size + GAP))
    columns = min(heads, max(1, beside, ceil(panels / MAX_ROWS)))
    columns = ceil(heads / ceil(heads / columns))  # as many in each row
    lines = [range(start, min(start + length, tokens)) for start in range(0, tokens, length)]
    return Grid(columns, lines, min(length * size, MAX_WIDTH / columns - GAP))


def draw_memories(memories: Memories, labels: tuple[str, str], output: Path, title: str) -> None:
    """Draws `writing`, and `reading` below it, with a panel for each layer and head.

    labels: of the upper and the lower half. All panels of a half have the same colour scale

    A scale ends at the largest weight, but at least at 3 / S in the upper half and 3 / M in the
    lower one, where uniform weights are 1 / S and 1 / M: a scale that ended at the largest of
    nearly uniform weights would show all of them in its darkest colour.

    Tokens that are too narrow for labels are numbered.
    """
    from matplotlib.figure import Figure

    layers, heads, slots = len(memories.layers), len(memories.heads), memories.writing.shape[3]
    # The number of weights that sum to 1: over the tokens of a slot, or the slots of a query.
    halves = [
        (memories.writing, memories.writers, labels[0], "Blues", len(memories.writers)),
        (memories.reading, memories.readers, labels[1], "Oranges", slots),
    ]
    grids = [make_grid(layers, heads, len(tokens)) for _, tokens, *_ in halves]
    rows = [layers * ceil(heads / one.columns) * len(one.lines) for one in grids]
    height = min(max(SLOT_HEIGHT * slots, 0.8), MAX_HEIGHT / sum(rows))
    heights = [
        0.5 + count * (0.5 + height + grid.label_height(tokens))
        for count, grid, (_, tokens, *_) in zip(rows, grids, halves, strict=True)
    ]
    width = max(1.8 + (GAP + one.width) * one.columns for one in grids)
    figure = Figure(dpi=DPI, figsize=(max(9.0, width), 0.5 + sum(heights)), layout="constrained")
    figure.suptitle(title, parse_math=False)
    figures = figure.subfigures(2, 1, squeeze=False, height_ratios=heights).flat
    for half, grid, (weights, tokens, label, colours, count) in zip(
        figures, grids, halves, strict=True
    ):
        half.suptitle(label, fontsize=10)
        scale = _scale(weights, colours, min(1.0, MIN_SCALE / count))
        names = [
            [f"layer {layer}, head {head}" for head in memories.heads] for layer in memories.layers
        ]
        _draw_half(half, grid, weights, tokens, names, scale)
    figure.savefig(output)


def _scale(weights: "Tensor", colours: str, least_end: float) -> dict[str, Any]:
    """The colours and the ends of a scale. least_end: its end, unless some weights are negative"""
    lowest, highest = float(weights.min()), float(weights.max())
    if lowest < 0:  # Linformer's control vectors may be negative
        highest = max(highest, -lowest)
        return {"cmap": "RdBu_r", "vmin": -highest, "vmax": highest}
    return {"cmap": colours, "vmin": 0.0, "vmax": max(highest, least_end)}


def _draw_half(
    half: Any,
    grid: Grid,
    weights: "Tensor",
    tokens: Sequence[str],
    names: Sequence[Sequence[str]],
    scale: dict[str, Any],
) -> None:
    """Draws a panel for each layer and head. weights: (layers, heads, tokens, M)"""
    rows = [
        (matrices[start : start + grid.columns], titles[start : start + grid.columns], line)
        for matrices, titles in zip(weights, names, strict=True)
        for start in range(0, len(titles), grid.columns)
        for line in grid.lines
    ]
    axes = half.subplots(len(rows), grid.columns, sharey=True, squeeze=False)
    for panels, (matrices, titles, line) in zip(axes, rows, strict=True):
        for panel in panels[len(titles) :]:
            panel.set_axis_off()
        for panel, matrix, title in zip(panels, matrices, titles, strict=False):
            image = _draw_panel(panel, grid, matrix, line, tokens, scale)
            panel.set_title(title, fontsize=9)
        panels[0].set_ylabel("memory slot")
        panels[0].yaxis.get_major_locator().set_params(integer=True)
    half.colorbar(image, ax=axes, pad=0.01, aspect=5 * half.bbox.height / DPI)


def _draw_panel(
    panel: Any,
    grid: Grid,
    weights: "Tensor",
    line: range,
    tokens: Sequence[str],
    scale: dict[str, Any],
) -> Any:
    """Draws a line of the tokens; returns the image. weights: (tokens, rows)"""
    part = weights[line.start : line.stop].T.float().numpy()
    extent = (line.start - 0.5, line.stop - 0.5, len(part) - 0.5, -0.5)
    image = panel.imshow(part, aspect="auto", extent=extent, **scale)
    panel.set_xlim(line.start - 0.5, line.start + len(grid.lines[0]) - 0.5)
    if grid.labelled:
        # parse_math would read text between dollar signs as a formula.
        shown = [tokens[number] for number in line]
        panel.set_xticks(line, shown, rotation=90, fontsize=8, parse_math=False)
    return image


def draw_selection(selection: Selection, output: Path, title: str) -> None:
    """Draws the weight of each sequence for each target token, one panel for each layer."""
    from matplotlib.figure import Figure

    panels, tokens, sequences = selection.weights.shape
    grid = make_grid(panels, 1, tokens)
    labels = [s if len(s) <= LONGEST else f"{s[: LONGEST - 1]}…" for s in selection.sentences]
    height = SENTENCE_HEIGHT * sequences + 0.6 + grid.label_height(selection.readers)
    size = max(9.0, 5.0 + grid.width), 1.2 + min(height * panels * len(grid.lines), MAX_HEIGHT)
    figure = Figure(dpi=DPI, figsize=size, layout="constrained")
    figure.suptitle(title, parse_math=False)
    axes = figure.subplots(panels * len(grid.lines), 1, squeeze=False)[:, 0]
    scale = {"cmap": "Oranges", "vmin": 0.0, "vmax": 1.0}
    for number, panel in enumerate(axes):
        layer, line = divmod(number, len(grid.lines))
        matrix, readers = selection.weights[layer], selection.readers
        image = _draw_panel(panel, grid, matrix, grid.lines[line], readers, scale)
        if selection.layers is not None:
            panel.set_title(f"layer {selection.layers[layer]}", fontsize=9)
        panel.set_yticks(range(sequences), labels, fontsize=8, parse_math=False)
    figure.colorbar(image, ax=axes, pad=0.01)
    figure.savefig(output)
