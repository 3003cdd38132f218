"""Checks of sizes and shapes that the layers have in common."""

import torch
from torch import Tensor


def check_heads(embed_dim: int, num_heads: int) -> None:
    """Raises ValueError for a number of heads that does not divide `embed_dim`."""
    if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
        raise ValueError(
            f"`num_heads` must divide `embed_dim` {embed_dim}, but is {num_heads} instead."
        )


def check_dropout(dropout: float) -> None:
    """Raises ValueError for a probability that is not in [0, 1)."""
    if not 0 <= dropout < 1:
        raise ValueError(f"`dropout` must be from 0 to below 1, but is {dropout} instead.")


def check_batch(
    name: str, x: Tensor, embed_dim: int, key_padding_mask: Tensor | None = None
) -> None:
    """Raises ValueError unless x is (B, S, embed_dim) and the mask (B, S) of torch.bool."""
    if x.dim() != 3 or x.shape[2] != embed_dim or x.numel() == 0:
        raise ValueError(
            f"`{name}` must be (B, length, {embed_dim}), none of them empty, "
            f"but is {tuple(x.shape)} instead."
        )
    if key_padding_mask is None:
        return
    if key_padding_mask.shape != x.shape[:2] or key_padding_mask.dtype != torch.bool:
        raise ValueError(
            f"`key_padding_mask` must be {tuple(x.shape[:2])} of torch.bool, but is "
            f"{tuple(key_padding_mask.shape)} of {key_padding_mask.dtype} instead."
        )
