"""Plots of control vectors, of read weights, and of the weights of a sequence selector."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

# Sizes in inches. A token, a slot and a sentence have these sizes unless the figure exceeds its
# maximum.
TOKEN_WIDTH, SLOT_HEIGHT, SENTENCE_HEIGHT = 0.24, 0.13, 0.3
MAX_WIDTH, MAX_HEIGHT = 60.0, 80.0  # of all panels together
MIN_LABELLED_WIDTH = 0.12  # of a token; the labels of narrower tokens would overlap
DPI = 110
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


def draw_memories(memories: Memories, labels: tuple[str, str], output: Path, title: str) -> None:
    """Draws `writing`, and `reading` below it, with one row for each layer and one column a head.

    labels: of the upper and the lower half. All panels of a half have the same colour scale

    A scale ends at the largest weight, but at least at 3 / S in the upper half and 3 / M in the
    lower one, where uniform weights are 1 / S and 1 / M: a scale that ended at the largest of
    nearly uniform weights would show all of them in its darkest colour.

    Tokens that are too narrow for labels are numbered.
    """
    from matplotlib.figure import Figure

    rows, columns = len(memories.layers), len(memories.heads)
    max_tokens = max(len(memories.writers), len(memories.readers))
    width = min(TOKEN_WIDTH * max_tokens, MAX_WIDTH / columns)
    height = min(max(SLOT_HEIGHT * memories.writing.shape[3], 0.8), MAX_HEIGHT / (2 * rows))
    figure = Figure(
        dpi=DPI,
        figsize=(max(9.0, 1.8 + (0.3 + width) * columns), 2.5 + (0.6 + height) * 2 * rows),
        layout="constrained",
    )
    figure.suptitle(title, parse_math=False)
    names = [f"layer {layer}, head {head}" for layer in memories.layers for head in memories.heads]
    upper, lower = figure.subfigures(2, 1, squeeze=False).flat
    labelled = width / max_tokens >= MIN_LABELLED_WIDTH
    # The number of weights that sum to 1: over the tokens of a slot, or the slots of a query.
    summands = len(memories.writers), memories.reading.shape[3]
    for half, weights, tokens, label, colours, count in (
        (upper, memories.writing, memories.writers, labels[0], "Blues", summands[0]),
        (lower, memories.reading, memories.readers, labels[1], "Oranges", summands[1]),
    ):
        half.suptitle(label, fontsize=10)
        axes = _draw_half(half, weights, names, colours, min(1.0, MIN_SCALE / count))
        for panel in axes[-1] if labelled else ():
            # parse_math would read text between dollar signs as a formula.
            panel.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=8, parse_math=False)
    figure.savefig(output)


def _draw_half(
    half: Any, weights: "Tensor", names: Sequence[str], colours: str, least_end: float
) -> Any:
    """Draws a panel for each layer and head; returns the axes (layers, heads).

    weights: (layers, heads, tokens, M)
    least_end: of the colour scale, unless some weights are negative
    """
    axes = half.subplots(*weights.shape[:2], sharex=True, sharey=True, squeeze=False)
    lowest, highest = float(weights.min()), float(weights.max())
    if lowest < 0:  # Linformer's control vectors may be negative
        highest = max(highest, -lowest)
        lowest, colours = -highest, "RdBu_r"
    else:
        lowest, highest = 0.0, max(highest, least_end)
    panels = zip(axes.flat, weights.flatten(0, 1), names, strict=True)
    for panel, matrix, name in panels:
        image = panel.imshow(
            matrix.T.float().numpy(),
            aspect="auto",
            cmap=colours,
            vmin=lowest,
            vmax=highest,
        )
        panel.set_title(name, fontsize=9)
    for panel in axes[:, 0]:
        panel.set_ylabel("memory slot")
        panel.yaxis.get_major_locator().set_params(integer=True)
    half.colorbar(image, ax=axes, pad=0.01, aspect=5 * half.bbox.height / DPI)
    return axes


def draw_selection(selection: Selection, output: Path, title: str) -> None:
    """Draws the weight of each sequence for each target token, one panel for each layer."""
    from matplotlib.figure import Figure

    panels, tokens, sequences = selection.weights.shape
    width, height = min(TOKEN_WIDTH * tokens, MAX_WIDTH), SENTENCE_HEIGHT * sequences
    figure = Figure(
        dpi=DPI,
        figsize=(max(9.0, 5.0 + width), 1.8 + min((0.6 + height) * panels, MAX_HEIGHT)),
        layout="constrained",
    )
    figure.suptitle(title, parse_math=False)
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    labels = [_shortened(sentence) for sentence in selection.sentences]
    for number, (panel, matrix) in enumerate(zip(axes, selection.weights, strict=True)):
        image = panel.imshow(
            matrix.T.float().numpy(), aspect="auto", cmap="Oranges", vmin=0.0, vmax=1.0
        )
        if selection.layers is not None:
            panel.set_title(f"layer {selection.layers[number]}", fontsize=9)
        panel.set_yticks(range(sequences), labels, fontsize=8, parse_math=False)
    if width / tokens >= MIN_LABELLED_WIDTH:
        readers = range(tokens), selection.readers
        axes[-1].set_xticks(*readers, rotation=90, fontsize=8, parse_math=False)
    figure.colorbar(image, ax=axes, pad=0.01)
    figure.savefig(output)


def _shortened(sentence: str, max_length: int = 40) -> str:
    return sentence if len(sentence) <= max_length else f"{sentence[: max_length - 1]}\u2026"
