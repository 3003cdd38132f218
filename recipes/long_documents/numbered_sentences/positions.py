"""Positions of tokens within numbered sentences."""

from typing import Any

import torch
from torch import Tensor, nn

SCALE = 2.5  # of the numbers; by trial, for a decoder that has to find its sentence among many


class SentencePositions(nn.Module):
    """Where a token is in its sentence, and the number of the sentence, as sinusoids.

    Each has half of the dimensions. Two numbers are nearly orthogonal, unlike positions: a sentence
    is not similar to the next one. A separator is position 0 of the sentence after it.

    size: of the embedding, a multiple of 4
    """

    max_positions = 100_000

    def __init__(self, size: int, padding: int, separator: int) -> None:
        super().__init__()
        self.padding, self.separator = padding, separator
        steps = torch.linspace(0, 1, size // 4)
        self.register_buffer("position_turns", 10_000**-steps, persistent=False)
        self.register_buffer("number_turns", 0.05 + 3 * steps, persistent=False)

    def forward(self, tokens: Tensor, incremental_state: Any = None) -> Tensor:
        """(B, T) to (B, T, size), zero at padding; (B, 1, size), the last, with a state."""
        real, separators = tokens.ne(self.padding), tokens.eq(self.separator)
        index = real.cumsum(dim=1)
        begin = torch.where(separators, index, 1).cummax(dim=1).values
        positions, numbers = index - begin, separators.cumsum(dim=1)
        if incremental_state is not None:
            positions, numbers, real = positions[:, -1:], numbers[:, -1:], real[:, -1:]
        parts = [
            *_circle(positions.unsqueeze(2) * self.position_turns),
            *(SCALE * x for x in _circle(numbers.unsqueeze(2) * self.number_turns)),
        ]
        return torch.cat(parts, dim=2) * real.unsqueeze(2)


def _circle(angles: Tensor) -> tuple[Tensor, Tensor]:
    return angles.sin(), angles.cos()
