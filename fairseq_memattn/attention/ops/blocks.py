"""Sequences (B, X, T, Y) cut into blocks, and tokens taken from them by index."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def lengthen(x: Tensor, missing: int, fill: float = 0.0) -> Tensor:
    """`fill`, zeros or False, after the end of the axis of length."""
    return pad(x, (0, 0, 0, missing), value=fill) if missing else x


def chunked(x: Tensor, size: int, fill: float = 0.0) -> Tensor:
    """(B, X, T, Y) as (B, X, L, C, Y), with `fill` after the end."""
    chunks: Tensor = lengthen(x, -x.shape[2] % size, fill).unflatten(2, (-1, size))
    return chunks


def blocks(x: Tensor, size: int) -> Tensor:
    """(B, X, T, Y) as (B, L, X, C, Y), with zeros after the end."""
    return chunked(x, size).transpose(1, 2)


def joined(x: Tensor, length: int) -> Tensor:
    """(B, L, X, C, Y) as (B, X, T, Y), T being length: what `blocks` has cut."""
    by_time: Tensor = x.transpose(1, 2).flatten(2, 3)
    return by_time[:, :, :length]


def take(x: Tensor, index: Tensor) -> Tensor:
    """Tokens of each row of x (B, X, S, Y) by index (B, I): (B, X, I, Y)."""
    if torch.compiler.is_exporting():  # whose symbolic lengths the indices below confuse
        return x.gather(2, index[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))
    batch, rows, length, _ = x.shape
    # A gather copies number by number; a selection of whole tokens copies whole tokens.
    starts = torch.arange(0, batch * rows * length, length, device=x.device).view(batch, rows, 1)
    tokens = (starts + index.unsqueeze(1)).flatten()
    taken: Tensor = x.flatten(0, 2).index_select(0, tokens).unflatten(0, (batch, rows, -1))
    return taken
