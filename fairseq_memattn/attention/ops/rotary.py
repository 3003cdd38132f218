"""Rotary positions (Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding")."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.common import constant


class Rotation(NamedTuple):
    """Turns pairs of dimensions of queries and keys by angles that grow with the position.

    Dimension i and dimension i + P of the first 2 P are a pair, as in Llama; others stay.

    cos, sin: of the angles, (B or 1, 1, T, P)
    positions: (B or 1, T); rotary: which angle a position has
    """

    cos: Tensor
    sin: Tensor
    positions: Tensor
    rotary: "Rotary"

    def turn(self, x: Tensor) -> Tensor:
        """x: (B, H, T, D). As x."""
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        pairs = cos.shape[-1]
        first, second, others = x.split([pairs, pairs, x.shape[-1] - 2 * pairs], dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin, others], dim=-1)

    def back(self) -> "Rotation":
        """The rotation that undoes this one."""
        return self._replace(sin=-self.sin)

    def take(self, index: Tensor) -> "Rotation":
        """That of the positions (N, L) of the only row, by their index."""
        cos, sin = (x[0, 0][index].unsqueeze(1) for x in (self.cos, self.sin))
        return self._replace(cos=cos, sin=sin, positions=self.positions[0][index])

    def at(self, positions: Tensor) -> "Rotation":
        """The rotation of other positions."""
        return self.rotary.rotation(positions, 2 * self.cos.shape[-1], self.cos.dtype)


@dataclass(frozen=True)
class Rotary:
    """The angles of rotary positions: position times frequency.

    base: frequency i of P = D / 2 is base ** (-i / P)
    frequencies: P <= D / 2 numbers in their place, for models that scale them, or that turn a part
        of the dimensions

    Raises ValueError for a base below 1.
    """

    base: float = 10000.0
    frequencies: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check.least(1, base=self.base)

    def rotation(self, positions: Tensor, head_dim: int, dtype: torch.dtype) -> Rotation:
        """positions: (B, T) or (T,) of integers; dtype: of the angles, float32 or float64."""
        positions, device = positions.view(-1, positions.shape[-1]), positions.device
        if self.frequencies is None:
            pairs = head_dim // 2
            exponents = torch.arange(pairs, dtype=dtype, device=device) / pairs
            frequencies = 1.0 / self.base**exponents
        else:
            frequencies = constant(self.frequencies, dtype, device)
        angles = (positions.to(dtype).unsqueeze(-1) * frequencies).unsqueeze(-3)
        return Rotation(angles.cos(), angles.sin(), positions, self)
