"""Checks of sizes and shapes that the layers have in common."""

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.ops.checks import DTYPES, check_mask, check_type
from fairseq_memattn.attention.ops.precision import is_autocast


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
    name: str,
    x: Tensor,
    embed_dim: int,
    key_padding_mask: Tensor | None = None,
    *,
    projection: nn.Module,
) -> None:
    """Raises ValueError unless x is (B, S, embed_dim) and the mask (B, S) of torch.bool.

    Raises TypeError for what is no tensor, and ValueError for another dtype than that of the
    projection of x.
    """
    check_floating(name, x, f"(B, length, {embed_dim})", projection)
    if x.dim() != 3 or x.shape[2] != embed_dim or x.numel() == 0:
        raise ValueError(
            f"`{name}` must be (B, length, {embed_dim}), none of them empty, "
            f"but is {tuple(x.shape)} instead."
        )
    check_mask("key_padding_mask", key_padding_mask, (x.shape[0], x.shape[1]))


def check_floating(name: str, x: Tensor, axes: str, projection: nn.Module | None = None) -> None:
    """Raises TypeError for what is no tensor, and ValueError for one of integers or booleans.

    Without autocast, raises ValueError for another dtype than that of the projection of x.
    """
    check_type(name, x, Tensor)
    if not x.is_floating_point():
        hint = "; a mask is given as `key_padding_mask`" if x.dtype == torch.bool else ""
        raise ValueError(
            f"`{name}` must be floating-point {axes}, "
            f"but is {tuple(x.shape)} of {x.dtype} instead{hint}."
        )
    weight = getattr(projection, "weight", None)
    # Quantised projections have weights of other kinds.
    if not isinstance(weight, Tensor) or weight.dtype not in DTYPES:
        return
    if x.dtype != weight.dtype and not is_autocast(x):
        raise ValueError(
            f"`{name}` must be of the layer's dtype, {weight.dtype}, without autocast, "
            f"but is of {x.dtype} instead."
        )
