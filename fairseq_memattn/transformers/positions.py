"""Positions as fairseq counts them: from pad_token_id + 1, padding has none."""

import torch
from torch import Tensor, nn

from fairseq_memattn.networks.positions import sinusoids


def positions_of(padding: Tensor | None, shape: tuple[int, int], start: Tensor) -> Tensor:
    """(B, T), from 1: how many tokens each row has up to its own; 0 at padding.

    start: (B,), the tokens before
    """
    if padding is None:
        tokens = torch.ones(shape, dtype=torch.long, device=start.device)
    else:
        tokens = (~padding).long()
    return (tokens.cumsum(dim=1) + start.unsqueeze(1)) * tokens


class SinusoidalPositions(nn.Module):
    """`sinusoids` of positions, without parameters."""

    def __init__(self, embed_dim: int, pad_token_id: int) -> None:
        super().__init__()
        self.embed_dim, self.pad_token_id = embed_dim, pad_token_id

    def forward(self, positions: Tensor) -> Tensor:
        """(B, T, E) of positions (B, T), as `positions_of` returns them; 0 for padding."""
        vectors = sinusoids(positions + self.pad_token_id, self.embed_dim)
        return vectors * (positions > 0).unsqueeze(2)


class LearnedPositions(nn.Embedding):
    """A vector for each position, of which fairseq leaves the first pad_token_id + 1 unused."""

    def __init__(self, max_positions: int, embed_dim: int, pad_token_id: int) -> None:
        super().__init__(max_positions + pad_token_id + 1, embed_dim, pad_token_id)
        self.pad_token_id = pad_token_id

    def forward(self, positions: Tensor) -> Tensor:
        """(B, T, E) of positions (B, T). Raises IndexError beyond the last one, on a CPU."""
        return super().forward(positions + self.pad_token_id)
