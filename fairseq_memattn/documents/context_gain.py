"""Conditional cross-mutual information: how much a model uses its context.

Fernandes et al. (2021), "Measuring and Increasing Context Usage in Context-Aware Machine
Translation", equation 2: the mean over sentences of log q(y|x,C) - log q(y|x), where q is one
model with and without the context C. By token the same difference is P-CXMI (Fernandes et al.
2023, "When Does Translation Require Context?").
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor


class Cxmi(NamedTuple):
    """In nats. Above 0 the context helps to predict the references.

    per_sentence: the CXMI as it was defined
    per_token: the same, divided by the tokens and not by the sentences
    helped: share of the sentences that became more likely, of those that have context
    """

    per_sentence: float
    per_token: float
    helped: float


def cxmi(without: Sequence[Tensor], with_context: Sequence[Tensor]) -> Cxmi:
    """Each: for every sentence the log-probabilities (T,) of its tokens.

    Raises ValueError where the two are not of the same tokens.
    """
    differences = gains(without, with_context)
    sums = torch.stack([difference.sum(dtype=torch.float64) for difference in differences])
    changed = sums[sums != 0]
    return Cxmi(
        float(sums.mean()),
        float(sums.sum()) / sum(map(len, differences)),
        float((changed > 0).double().mean()) if len(changed) else 0.0,
    )


def gains(without: Sequence[Tensor], with_context: Sequence[Tensor]) -> list[Tensor]:
    """P-CXMI (T,) of every sentence: what the context adds to each token's log-probability."""
    if [len(tokens) for tokens in without] != [len(tokens) for tokens in with_context]:
        raise ValueError("the two sets of scores are not of the same tokens")
    return [after - before for before, after in zip(without, with_context, strict=True)]


def draw_gains(
    sentences: Sequence[Sequence[str]], values: Sequence[Tensor], output: Path, title: str
) -> None:
    """Draws a document, a sentence a row, each token in the colour of what context adds to it.

    sentences: the tokens of each sentence; values: as many numbers for each, in nats
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.figure import Figure

    character, line = 0.085, 0.3  # inches
    widths = [sum(len(token) + 1 for token in tokens) for tokens in sentences]
    figure = Figure(
        figsize=(2 + character * max(widths), 1.2 + line * len(sentences)), layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    most = max(1e-6, max(float(tokens.abs().max()) for tokens in values))
    colours = ScalarMappable(TwoSlopeNorm(0, -most, most), "RdBu")
    for row, (tokens, numbers) in enumerate(zip(sentences, values, strict=True)):
        place = 0
        for token, number in zip(tokens, numbers.tolist(), strict=True):
            width = len(token) + 1
            face = colours.to_rgba(number)
            axes.barh(row, width, left=place, height=1, color=face)
            dark = sum(face[:3]) < 1.5
            axes.text(
                place + width / 2, row, token, ha="center", va="center", family="monospace",
                fontsize=8, color="white" if dark else "black",
            )  # fmt: skip
            place += width
    axes.set(xlim=(0, max(widths)), ylim=(len(sentences) - 0.5, -0.5), title=title, xticks=[])
    axes.set_ylabel("sentence")
    axes.set_yticks(range(len(sentences)))
    figure.colorbar(colours, ax=axes, label="gain in log-probability (nats)")
    figure.savefig(output, dpi=110)
