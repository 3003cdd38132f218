"""Losses of a language model by the number of tokens that it has read before a token."""

from typing import NamedTuple

import torch
from torch import Tensor

FIRST = 64  # positions of the first range; the next ones double: 64 to 127, 128 to 255, ...


class PositionRange(NamedTuple):
    """Tokens before which the model has read from `begin` to `end` tokens, `end` not included.

    loss: mean negative log-probability of a token, in bits
    """

    begin: int
    end: int
    tokens: int
    loss: float
    perplexity: float


def perplexity(loss: float) -> float:
    """2 to the power of a loss in bits; infinity where that is too large for a float."""
    try:
        return float(2**loss)
    except OverflowError:
        return float("inf")


class LossByPosition:
    """Sums of losses, over all tokens and over ranges of positions."""

    def __init__(self) -> None:
        self._edges = FIRST * 2 ** torch.arange(32)
        self._loss = torch.zeros(len(self._edges), dtype=torch.float64)
        self._tokens = torch.zeros(len(self._edges), dtype=torch.int64)

    def add(self, positions: Tensor, losses: Tensor) -> None:
        """Adds tokens.

        positions: (N,), the number of tokens before each token
        losses: (N,), negative log-probabilities in bits
        """
        positions, size = positions.cpu(), len(self._edges)
        ranges = torch.bucketize(positions, self._edges, right=True)
        self._loss += torch.bincount(ranges, losses.cpu().double(), minlength=size)
        self._tokens += torch.bincount(ranges, minlength=size)

    @property
    def tokens(self) -> int:
        return int(self._tokens.sum())

    @property
    def loss(self) -> float:
        """The mean over all tokens."""
        return float(self._loss.sum()) / self.tokens

    @property
    def perplexity(self) -> float:
        """Of all tokens."""
        return perplexity(self.loss)

    def ranges(self) -> list[PositionRange]:
        """Those that have tokens."""
        edges = [0, *self._edges.tolist()]
        found = zip(edges, edges[1:], self._tokens.tolist(), self._loss.tolist(), strict=False)
        return [
            PositionRange(begin, end, tokens, loss / tokens, perplexity(loss / tokens))
            for begin, end, tokens, loss in found
            if tokens
        ]
