"""Unit vectors in the place of values: what comes out of an attention is then its weights."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def unit_values(size: int, like: Tensor) -> tuple[Tensor, ...]:
    """The unit vectors of `size` dimensions, cut into values as wide as those that are replaced.

    like: (B, H, *, D), the values that are replaced, or the keys

    Returns ceil(size / D) tensors (B, H, size, D): columns 0 to D - 1 of the unit matrix, D to
    2 D - 1, and so on, with zeros after the last one.
    """
    batch, heads, _, width = like.shape
    units = torch.eye(size, dtype=like.dtype, device=like.device)
    columns = pad(units, (0, -size % width)).split(width, dim=1)
    return tuple(piece.expand(batch, heads, -1, -1) for piece in columns)
