"""Where the tokens of sequences with padding are, and the parts that a memory stands for."""

import torch
from torch import Tensor


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
