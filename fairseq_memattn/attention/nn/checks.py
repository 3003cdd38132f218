"""Checks of sizes and shapes that the layers have in common."""

from numbers import Integral, Real

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.ops.checks import DTYPES, check_devices, check_mask, check_type
from fairseq_memattn.attention.ops.precision import is_autocast


def check_int(name: str, value: object) -> None:
    """Raises ValueError for what is no int."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ValueError(f"`{name}` must be an int, but is {value!r} instead.")


def check_sizes(**sizes: object) -> None:
    """Raises ValueError for what is no int, or below 1."""
    for name, value in sizes.items():
        check_int(name, value)
        if value < 1:  # type: ignore[operator]
            raise ValueError(f"`{name}` must be at least 1, but is {value} instead.")


def check_heads(embed_dim: int, num_heads: int) -> None:
    """Raises ValueError for a number of heads that does not divide `embed_dim`."""
    check_int("embed_dim", embed_dim)
    check_int("num_heads", num_heads)
    if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
        raise ValueError(
            f"`num_heads` must divide `embed_dim` {embed_dim}, but is {num_heads} instead."
        )


def check_dropout(dropout: float) -> None:
    """Raises ValueError for a probability that is not in [0, 1)."""
    if not isinstance(dropout, Real | Tensor) or not 0 <= dropout < 1:
        raise ValueError(f"`dropout` must be from 0 to below 1, but is {dropout!r} instead.")


def check_batch(
    name: str,
    x: Tensor,
    embed_dim: int,
    key_padding_mask: Tensor | None = None,
    *,
    projection: nn.Module,
) -> None:
    """Raises ValueError unless x is (B, S, embed_dim) and the mask (B, S) of torch.bool.

    Raises TypeError for what is no tensor, and ValueError for another dtype or device than that of
    the projection of x.
    """
    check_floating(name, x, f"(B, length, {embed_dim})", projection)
    if x.dim() != 3 or x.shape[2] != embed_dim or x.numel() == 0:
        raise ValueError(
            f"`{name}` must be (B, length, {embed_dim}), none of them empty, "
            f"but is {tuple(x.shape)} instead."
        )
    check_mask("key_padding_mask", key_padding_mask, (x.shape[0], x.shape[1]))
    check_devices(name, x.device, key_padding_mask=key_padding_mask)


def check_floating(name: str, x: Tensor, axes: str, projection: nn.Module | None = None) -> None:
    """Raises TypeError for what is no tensor, and ValueError for one of integers or booleans.

    Raises ValueError for another device than that of the projection of x, and, without autocast,
    for another dtype.
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
    # Weights that are moved when they are needed are on meta until then, or a hook moves them.
    is_moved = weight.is_meta or bool(projection and projection._forward_pre_hooks)
    if x.device != weight.device and not is_moved:
        raise ValueError(
            f"`{name}` must be on the layer's device, {weight.device}, "
            f"but is on {x.device} instead."
        )
    if x.dtype != weight.dtype and not is_autocast(x):
        raise ValueError(
            f"`{name}` must be of the layer's dtype, {weight.dtype}, without autocast, "
            f"but is of {x.dtype} instead."
        )
