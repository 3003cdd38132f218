"""Sequences (B, X, T, Y) cut into blocks, tokens taken by index, and where the real ones are."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def lengthen(x: Tensor, missing: int, fill: float = 0.0) -> Tensor:
    """`fill`, zeros or False, after the end of the axis of length."""
    return pad(x, (0, 0, 0, missing), value=fill) if missing else x


def chunked(x: Tensor, size: int, fill: float = 0.0) -> Tensor:
    """(B, X, T, Y) as (B, X, L, C, Y), with `fill` after the end."""
    return lengthen(x, -x.shape[2] % size, fill).unflatten(2, (-1, size))


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
    return x.flatten(0, 2).index_select(0, tokens).unflatten(0, (batch, rows, -1))


def tokens_first(key_padding_mask: Tensor) -> Tensor:
    """The order that moves the padding of each row behind its tokens.

    key_padding_mask: (B, S), True at padding

    Returns indices (B, S) for `reorder`; tokens keep their order. `order.argsort(dim=1)` is the
    order that moves them back.
    """
    return key_padding_mask.to(torch.uint8).argsort(dim=1, stable=True)


def reorder(x: Tensor, order: Tensor) -> Tensor:
    """x (B, S) or (B, S, E) with the positions of each row in another order, (B, S)."""
    rows = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    return x[rows, order]


def spread_positions(lengths: Tensor, slots: int) -> Tensor:
    """The positions in the middle of M equal parts of each sequence: (2 m + 1) L div 2 M.

    lengths: (B,), the tokens L of each sequence; slots: M

    Returns (B, M). Where M > L, several parts have the same position.
    """
    middles = 2 * torch.arange(slots, device=lengths.device) + 1
    return middles * lengths.unsqueeze(1) // (2 * max(slots, 1))
