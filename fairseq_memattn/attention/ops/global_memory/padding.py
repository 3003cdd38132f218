"""Sequences with padding anywhere, rearranged so that all padding is on the right."""

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
