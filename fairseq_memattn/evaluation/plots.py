"""Pictures of what a bounded memory holds."""

from pathlib import Path

from torch import Tensor


def draw_memory(
    writing: Tensor,
    reading: Tensor,
    source: list[str],
    target: list[str],
    output: Path,
    title: str,
) -> None:
    """Draws who wrote into each slot and who read it, one under the other.

    writing: phi (S, M), the share of each slot that each source token makes up
    reading: p (T, M), how much each target token reads of each slot
    source, target: the S and T tokens
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = 2.5 + 0.24 * max(len(source), len(target))
    height = 2.5 + 0.26 * writing.shape[1]
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    panels = (
        (writing, source, "Share of the slot written by each source token", "Blues"),
        (
            reading,
            target,
            "Weight of the slot in the decoder's reading, fed with the reference",
            "Oranges",
        ),
    )
    for axes, (weights, tokens, label, colours) in zip(figure.subplots(2, 1), panels, strict=True):
        image = axes.imshow(
            weights.T.float().numpy(), aspect="auto", cmap=colours, interpolation="nearest", vmin=0
        )
        axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=8)
        axes.set_ylabel("memory slot")
        axes.set_title(label, fontsize=10)
        figure.colorbar(image, ax=axes, pad=0.01)
    figure.savefig(output, dpi=110)
