"""Vectors of positions: sinusoids, and sums of two learned vectors."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, pad

# GMAT's block (section 2, "Positional Embeddings"): the length of the sequences of BERT.
BLOCK = 512
MAX_POSITIONS = 2**15


def sinusoids(positions: Tensor, embed_dim: int) -> Tensor:
    """The vectors of "Attention is all you need", section 3.5: all sines, then all cosines.

    positions: (...), of any dtype. Returns (..., embed_dim) in float32. As in tensor2tensor, the
    rates go from 1 to 1 / 10000, both included.
    """
    half = embed_dim // 2
    steps = torch.arange(half, dtype=torch.float, device=positions.device)
    rates = torch.exp(steps * -(math.log(10000) / (half - 1)))
    angles = positions.float().unsqueeze(-1) * rates
    return pad(torch.cat([angles.sin(), angles.cos()], dim=-1), (0, embed_dim % 2))


def marian_sinusoids(positions: Tensor, embed_dim: int) -> Tensor:
    """The vectors of Marian, whose rates are those of the paper: 10000 ** (-2 i / embed_dim).

    positions: (...), from 0. Returns (..., embed_dim) in float32: all sines, then all cosines, from
    angles in float64, as the published models have them.
    """
    sines = embed_dim - embed_dim // 2
    steps = torch.arange(sines, dtype=torch.double, device=positions.device)
    angles = positions.double().unsqueeze(-1) * 10000.0 ** (-2 * steps / embed_dim)
    return torch.cat([angles.sin(), angles[..., : embed_dim // 2].cos()], dim=-1).float()


def token_positions(key_padding_mask: Tensor) -> Tensor:
    """The position of each token, from 0, without counting padding.

    key_padding_mask: (B, S), True at padding. Returns (B, S).
    """
    return ((~key_padding_mask).cumsum(dim=1) - 1).clamp(min=0)


class SinusoidalPositions(nn.Module):
    """Sinusoids, where the first position is `first`, as in fairseq.

    vectors: `sinusoids` or `marian_sinusoids`
    """

    def __init__(
        self, embed_dim: int, first: int, vectors: Callable[[Tensor, int], Tensor] = sinusoids
    ) -> None:
        super().__init__()
        self.embed_dim, self.first, self.vectors = embed_dim, first, vectors

    def forward(self, positions: Tensor, key_padding_mask: Tensor) -> Tensor:
        """positions: (B, S), from 0; key_padding_mask: (B, S), True at padding, which has zeros.

        Returns (B, S, E).
        """
        vectors = self.vectors(positions + self.first, self.embed_dim)
        return vectors.masked_fill(key_padding_mask.unsqueeze(2), 0.0)


class BlockPositions(nn.Embedding):
    """Position p has the sum of two learned vectors, of r = p mod N and of q = p div N.

    Source: GMAT, section 2. The first vectors may be those of a pretrained model with N positions.

    weight: (padding_idx + 1 + N, E), of r in the layout of RoBERTa's table
    blocks: (max_positions / N rounded up, E), of q. They start as zeros, which leaves the first N
        positions of a pretrained model as they are (a choice)
    with_blocks: the paper's POSq; without it every position has the vector of q = 0, which is not
        trained, so that positions repeat after N
    """

    padding_idx: int

    def __init__(
        self,
        embed_dim: int,
        padding_idx: int,
        block: int = BLOCK,
        max_positions: int = MAX_POSITIONS,
        with_blocks: bool = True,
    ) -> None:
        super().__init__(padding_idx + 1 + block, embed_dim, padding_idx)
        nn.init.normal_(self.weight, std=embed_dim**-0.5)
        nn.init.zeros_(self.weight[padding_idx])
        of_q = torch.zeros(-(-max_positions // block), embed_dim)
        self.blocks = nn.Parameter(of_q, requires_grad=with_blocks)
        self.block, self.with_blocks = block, with_blocks

    def forward(  # type: ignore[override]
        self, positions: Tensor, key_padding_mask: Tensor
    ) -> Tensor:
        """positions: (B, S), from 0; key_padding_mask: (B, S), True at padding.

        Returns (B, S, E).
        """
        rows = positions % self.block + self.padding_idx + 1
        of_r = super().forward(rows.masked_fill(key_padding_mask, self.padding_idx))
        if not self.with_blocks:
            return of_r + self.blocks[0]
        return of_r + embedding(positions // self.block, self.blocks)
