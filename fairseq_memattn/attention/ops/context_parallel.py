"""Context parallelism: the time axis of a causal sequence in parts, one for each process.

What a part writes is a memory, whose size does not depend on the part's length. The processes
gather these memories, and each sums those of the parts before its own:

    before_r = sum_{s < r} w_s written_s

where the weights w follow from the log masses as the control requires. The gradient of what part s
writes is the sum over the parts after s, which a reduce-scatter forms.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from fairseq_memattn.attention.ops.carry import empty_like
from fairseq_memattn.attention.ops.common import EMPTY, MemoryState, is_written

# From the log masses of parts (R, B, h, M) to their weights (R, B, h, M) and the mass (B, h, M).
Weigh = Callable[[Tensor], tuple[Tensor, Tensor]]


def shares(log_mass: Tensor) -> tuple[Tensor, Tensor]:
    """Normalised control vectors: memories are means, weighted by their masses."""
    total = log_mass.logsumexp(dim=0)
    return (log_mass - total).exp() * is_written(log_mass), total


def sums(log_mass: Tensor) -> tuple[Tensor, Tensor]:
    """Control vectors that nothing divides."""
    return is_written(log_mass).to(log_mass.dtype), log_mass.amax(dim=0)


def decays(log_gate: Tensor) -> tuple[Tensor, Tensor]:
    """Gates, of whose product over a part log_gate is the logarithm."""
    return _later(log_gate).exp(), log_gate.sum(dim=0)


def memory_before(
    written: MemoryState,
    group: ProcessGroup,
    *,
    weigh: Weigh = shares,
    start: MemoryState | None = None,
    ends: bool = False,
) -> MemoryState:
    """The memory before the part of this process, shaped as `written`, what the part writes.

    start: the memory before the whole sequence, of the first process; None is empty
    ends: whether a sequence ends in the part or at its first position. Later parts then read
        nothing that earlier ones wrote; `written` holds what follows the last end

    Every process of the group calls this, and if one computes gradients, all do.

    Raises ValueError for a start in another process than the first.
    """
    rank = distributed.get_rank(group)
    if start is not None and rank:
        raise ValueError(
            f"`state` is that before the whole sequence, which the first process gives, and must "
            f"be None in process {rank}."
        )
    part = written
    if start is None:
        start = empty_like(written)
    else:
        part = _join([torch.stack(pair) for pair in zip(start, written, strict=True)], weigh)
    ended = written.log_mass.new_full((1,), float(ends))
    rows = _Gather.apply(_packed(*start, ended), _packed(*part, ended), group)[: rank + 1]
    *parts, ended = (
        piece.unflatten(1, x.shape)
        for piece, x in zip(
            rows.split([*(x.numel() for x in written), 1], dim=1), (*written, ended), strict=True
        )
    )
    hidden = _later(ended.squeeze(1)) > 0
    parts[2] = parts[2].masked_fill(hidden[:, None, None, None], EMPTY)
    return _join(parts, weigh)


def count_before(count: Tensor, group: ProcessGroup) -> Tensor:
    """The sum of integers (B,) over the processes before this one."""
    return _gather(count, group)[: distributed.get_rank(group)].sum(dim=0)


def _join(parts: list[Tensor], weigh: Weigh) -> MemoryState:
    """The memory of parts: keys, values (R, B, H, M, D) and log masses (R, B, h, M)."""
    weights, log_mass = weigh(parts[2])
    keys, values = ((weights.unsqueeze(-1) * x).sum(dim=0) for x in parts[:2])
    return MemoryState(keys, values, log_mass)


def _later(x: Tensor) -> Tensor:
    """The sum of the rows after each row."""
    return torch.cat([x[1:], torch.zeros_like(x[:1])]).flip(0).cumsum(dim=0).flip(0)


def _packed(*tensors: Tensor) -> Tensor:
    return torch.cat([x.flatten() for x in tensors])


def _gather(x: Tensor, group: ProcessGroup) -> Tensor:
    """The x of every process, (R, *x.shape)."""
    rows = x.new_empty(distributed.get_world_size(group), *x.shape)
    distributed.all_gather([*rows], x, group=group)
    return rows


class _Gather(torch.autograd.Function):
    """`start` of this process, and after it the `part` of every process: (1 + R, N).

    The first row lets autograd call `backward` in the first process too, which reads no part.
    """

    @staticmethod
    def forward(ctx: Any, start: Tensor, part: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return torch.cat([start.unsqueeze(0), _gather(part, group)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (grad,) = grads
        own = torch.empty_like(grad[0])
        distributed.reduce_scatter(own, [*grad[1:]], group=ctx.group)
        return grad[0], own, None
