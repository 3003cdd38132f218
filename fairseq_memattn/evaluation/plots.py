"""Pictures of what bounded memories hold, how they are read, and which sequences are selected."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

TOKEN, SLOT, SENTENCE = 0.24, 0.13, 0.3  # inches, where there is room
WIDEST, HIGHEST = 60.0, 80.0  # inches of all panels together
LEGIBLE = 0.12  # inches of a token that is labelled
DOTS = 110  # an inch


class Memories(NamedTuple):
    """The memories of some layers and heads.

    layers, heads: their numbers
    writers, readers: the S tokens that write, and the T tokens that the memory is read for
    writing: phi (layers, heads, S, M), how much of each slot each token is
    reading: p (layers, heads, T, M), how much of each slot is read for each token
    """

    layers: Sequence[int]
    heads: Sequence[int]
    writers: Sequence[str]
    readers: Sequence[str]
    writing: "Tensor"
    reading: "Tensor"

    def as_lists(self) -> list[dict[str, Any]]:
        """A dictionary for each layer and head, ready for JSON."""
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
    """What a sequence selector takes.

    layers: their numbers, or None where one selection serves all
    sentences: the K sequences, the current one last
    readers: the T target tokens
    weights: (layers or 1, T, K), how much of each sequence a target token's mixture holds
    """

    layers: Sequence[int] | None
    sentences: Sequence[str]
    readers: Sequence[str]
    weights: "Tensor"

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return self._asdict() | {"weights": self.weights.tolist()}


def check_format(option: str, path: Path) -> None:
    """Raises ValueError where the name of a picture does not say in which format to write it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if path.suffix.removeprefix(".") not in FigureCanvasAgg.get_supported_filetypes():
        raise ValueError(f"{option} must end with .png or another picture's name, but is {path}")


def draw_memories(memories: Memories, labels: tuple[str, str], output: Path, title: str) -> None:
    """Draws who writes into each slot, and below it who reads it: a row a layer, a column a head.

    labels: of the upper and of the lower half, each of which has one scale for all of its panels

    Where tokens get too narrow for labels, their numbers take their place.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, columns = len(memories.layers), len(memories.heads)
    most = max(len(memories.writers), len(memories.readers))
    width = min(TOKEN * most, WIDEST / columns)
    height = min(max(SLOT * memories.writing.shape[3], 0.8), HIGHEST / (2 * rows))
    figure = Figure(
        dpi=DOTS,
        figsize=(max(9.0, 1.8 + (0.3 + width) * columns), 2.5 + (0.6 + height) * 2 * rows),
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    names = [f"layer {layer}, head {head}" for layer in memories.layers for head in memories.heads]
    upper, lower = figure.subfigures(2, 1, squeeze=False).flat
    legible = width / most >= LEGIBLE
    for half, weights, tokens, label, colours in (
        (upper, memories.writing, memories.writers, labels[0], "Blues"),
        (lower, memories.reading, memories.readers, labels[1], "Oranges"),
    ):
        half.suptitle(label, fontsize=10)
        axes = _draw_half(half, weights, names, colours)
        for panel in axes[-1] if legible else ():
            # A dollar begins no formula.
            panel.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=8, parse_math=False)
    figure.savefig(output)


def _draw_half(half: Any, weights: "Tensor", names: Sequence[str], colours: str) -> Any:
    """A panel for each of weights (layers, heads, tokens, M); returns them as (layers, heads)."""
    axes = half.subplots(*weights.shape[:2], sharex=True, sharey=True, squeeze=False)
    least, most = float(weights.min()), float(weights.max())
    if least < 0:  # Linformer's control vectors have signs
        most = max(most, -least)
        least, colours = -most, "RdBu_r"
    panels = zip(axes.flat, weights.flatten(0, 1), names, strict=True)
    for panel, matrix, name in panels:
        image = panel.imshow(
            matrix.T.float().numpy(), aspect="auto", cmap=colours, vmin=min(least, 0.0), vmax=most
        )
        panel.set_title(name, fontsize=9)
    for panel in axes[:, 0]:
        panel.set_ylabel("memory slot")
        panel.yaxis.get_major_locator().set_params(integer=True)
    half.colorbar(image, ax=axes, pad=0.01, aspect=5 * half.bbox.height / DOTS)
    return axes


def draw_selection(selection: Selection, output: Path, title: str) -> None:
    """Draws which sequences each target token draws on, a panel a layer."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels, tokens, sequences = selection.weights.shape
    width, height = min(TOKEN * tokens, WIDEST), SENTENCE * sequences
    figure = Figure(
        dpi=DOTS,
        figsize=(max(9.0, 5.0 + width), 1.8 + min((0.6 + height) * panels, HIGHEST)),
        layout="constrained",
    )
    FigureCanvasAgg(figure)
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
    if width / tokens >= LEGIBLE:
        readers = range(tokens), selection.readers
        axes[-1].set_xticks(*readers, rotation=90, fontsize=8, parse_math=False)
    figure.colorbar(image, ax=axes, pad=0.01)
    figure.savefig(output)


def _shortened(sentence: str, most: int = 40) -> str:
    return sentence if len(sentence) <= most else f"{sentence[: most - 1]}\u2026"
