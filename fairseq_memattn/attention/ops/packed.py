"""Sequences one after another in one row, as rows of a batch."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


def ends_of(cu_seqlens: Tensor, length: int) -> list[int]:
    """The numbers of `cu_seqlens`, read from the device.

    Raises ValueError unless they rise from 0 to at most `length`.
    """
    ends: list[int] = cu_seqlens.tolist()
    if ends[0] != 0 or ends != sorted(ends) or ends[-1] > length:
        raise ValueError(
            f"`cu_seqlens` must rise from 0 to at most {length}, but is {ends} instead."
        )
    return ends


def packed_positions(cu_seqlens: Tensor, length: int) -> Tensor:
    """(1, T): the number of tokens of the own sequence before each token."""
    index = torch.arange(length, device=cu_seqlens.device)
    own = torch.searchsorted(cu_seqlens, index.to(cu_seqlens.dtype), right=True) - 1
    return (index - cu_seqlens[own]).unsqueeze(0)


class Rows(NamedTuple):
    """N sequences of at most L tokens, packed in one row of T positions.

    order: (N, L), where in the row each token is; padding: (N, L), True after the last token
    places: the places of the first tokens of the row among all N L
    length: T
    """

    order: Tensor
    padding: Tensor
    places: Tensor
    length: int

    @classmethod
    def of(cls, cu_seqlens: Tensor, length: int) -> "Rows":
        """Raises ValueError as `ends_of` does, and for no token at all."""
        ends = torch.tensor(ends_of(cu_seqlens, length))
        starts, counts = ends[:-1], ends.diff()
        starts, counts = starts[counts > 0], counts[counts > 0]
        if not len(counts):
            raise ValueError("`cu_seqlens` must have a sequence of a token or more.")
        steps = torch.arange(int(counts.max()))
        padding = steps >= counts.unsqueeze(1)
        index = (starts.unsqueeze(1) + steps).masked_fill(padding, 0)
        places = (~padding).flatten().nonzero().squeeze(1)
        device = cu_seqlens.device
        return cls(index.to(device), padding.to(device), places.to(device), length)

    def unpack(self, x: Tensor) -> Tensor:
        """(1, X, T, Y) as (N, X, L, Y)."""
        rows: Tensor = x[0].index_select(1, self.order.flatten()).unflatten(1, self.order.shape)
        return rows.transpose(0, 1)

    def pack(self, rows: Tensor) -> Tensor:
        """(N, X, L, Y) as (1, X, T, Y), zeros after the last sequence."""
        packed = rows.transpose(0, 1).flatten(1, 2).index_select(1, self.places)
        return pad(packed, (0, 0, 0, self.length - packed.shape[1])).unsqueeze(0)
