"""Layouts of states: fairseq's transformer is time first, this package is batch first."""

from torch import Tensor


def batch_first(x: Tensor) -> Tensor:
    """(T, B, E) as (B, T, E), without a copy."""
    return x.transpose(0, 1)


def time_first(x: Tensor) -> Tensor:
    """(B, T, E) as (T, B, E), without a copy."""
    return x.transpose(0, 1)
