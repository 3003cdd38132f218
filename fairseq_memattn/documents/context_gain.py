"""Conditional cross-mutual information: how much a model uses its context.

Fernandes et al. (2021), "Measuring and Increasing Context Usage in Context-Aware Machine
Translation", equation 2: the mean over sentences of log q(y|x,C) - log q(y|x), where q is one
model with and without the context C. P-CXMI is the same difference for each token (Fernandes et
al., 2023, "When Does Translation Require Context?").
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

ROW_LENGTH = 100  # characters in a row of the picture


class Cxmi(NamedTuple):
    """CXMI in nats. It is above 0 if the references are more likely with context.

    per_sentence: mean over sentences, as in equation 2
    per_token: mean over tokens
    helped: share of sentences that are more likely with context, among those that have context
    """

    per_sentence: float
    per_token: float
    helped: float


def cxmi(
    without: Sequence[Tensor], with_context: Sequence[Tensor], has_context: Sequence[bool]
) -> Cxmi:
    """Compares the same sentences without and with context.

    without, with_context: the log-probabilities (T,) of the tokens of each sentence
    has_context: which sentences have any, unlike the first ones of documents, and those whose
        window has no room for it

    Raises ValueError for different numbers of tokens.
    """
    differences = gains(without, with_context)
    sums = torch.stack([difference.sum(dtype=torch.float64) for difference in differences])
    compared = sums[torch.tensor(has_context)]
    return Cxmi(
        float(sums.mean()),
        float(sums.sum()) / sum(map(len, differences)),
        float((compared > 0).double().mean()) if len(compared) else 0.0,
    )


def gains(without: Sequence[Tensor], with_context: Sequence[Tensor]) -> list[Tensor]:
    """P-CXMI (T,) of each sentence: the increase of each token's log-probability by the context."""
    if [len(tokens) for tokens in without] != [len(tokens) for tokens in with_context]:
        raise ValueError("the two sets of scores are not of the same tokens")
    return [after - before for before, after in zip(without, with_context, strict=True)]


def draw_gains(
    sentences: Sequence[Sequence[str]], values: Sequence[Tensor], output: Path, title: str
) -> None:
    """Draws a document with a new row for each sentence. The colour of a token shows its P-CXMI.

    sentences: the tokens of each sentence; values: the P-CXMI (T,) of each sentence, in nats

    A sentence of more than ROW_LENGTH characters has several rows.
    """
    from matplotlib import rcParams
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.figure import Figure

    character, line = 0.085, 0.3  # inches
    families = ["monospace", *rcParams["font.family"]]
    rows, first = _rows(sentences, values)
    width = max(_width(tokens) for tokens, _ in rows)
    figure = Figure(figsize=(2 + character * width, 1.2 + line * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    largest = max(1e-6, max(float(tokens.abs().max()) for tokens in values))
    colours = ScalarMappable(TwoSlopeNorm(0, -largest, largest), "RdBu")
    for row, (tokens, numbers) in enumerate(rows):
        left = 0
        for token, number in zip(tokens, numbers.tolist(), strict=True):
            size = _width([token])
            face = colours.to_rgba(number)
            axes.barh(row, size, left=left, height=1, color=face)
            dark = sum(face[:3]) < 1.5
            axes.text(
                left + size / 2, row, token, ha="center", va="center", family=families,
                fontsize=8, color="white" if dark else "black", parse_math=False,
            )  # fmt: skip
            left += size
    for row in first[1:]:
        axes.axhline(row - 0.5, color="0.7", linewidth=0.5)
    axes.set(xlim=(0, width), ylim=(len(rows) - 0.5, -0.5), title=title, xticks=[])
    axes.set_ylabel("sentence")
    axes.set_yticks(first, [str(number) for number in range(len(sentences))])
    figure.colorbar(colours, ax=axes, label="gain in log-probability (nats)")
    figure.savefig(output, dpi=110)


def _rows(
    sentences: Sequence[Sequence[str]], values: Sequence[Tensor]
) -> tuple[list[tuple[Sequence[str], Tensor]], list[int]]:
    """The tokens and values of each row, and the number of each sentence's first row."""
    rows: list[tuple[Sequence[str], Tensor]] = []
    first = []
    for tokens, numbers in zip(sentences, values, strict=True):
        first.append(len(rows))
        begin = 0
        for end in range(1, len(tokens) + 1):
            if end == len(tokens) or _width(tokens[begin : end + 1]) > ROW_LENGTH:
                rows.append((tokens[begin:end], numbers[begin:end]))
                begin = end
    return rows, first


def _width(tokens: Sequence[str]) -> int:
    return sum(len(token) + 1 for token in tokens)
