"""The causal forms of ABC, and of memories that nothing divides, behind one signature."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.common import MemoryState, accumulation_dtype, read_scale

# Of q, k, v, a control in the accumulation dtype without padding, a memory, a scale, a chunk size.
Causal = Callable[
    [Tensor, Tensor, Tensor, Tensor, MemoryState, float, int | None], tuple[Tensor, MemoryState]
]
# A control, the padding and a dtype, to the control in this dtype that writes no padding.
Mask = Callable[[Tensor, Tensor | None, torch.dtype], Tensor]
Backend = Callable[
    [Tensor, Tensor, Tensor, Tensor, Tensor | None, MemoryState | None, float | None, int | None],
    tuple[Tensor, MemoryState],
]


def causal_backends(
    chunked: Causal, naive: Causal, mask: Mask, *, normalised: bool
) -> dict[str, Backend]:
    """The causal form over T positions from a given memory, by the name of the backend."""
    return {
        "chunked": partial(_in_pytorch, chunked, mask),
        "naive": partial(_in_pytorch, naive, mask),
        "triton": partial(_by_kernels, normalised),
    }


def _in_pytorch(
    attend: Causal,
    mask: Mask,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    control: Tensor,
    key_padding_mask: Tensor | None,
    state: MemoryState | None,
    scale: float | None,
    chunk_size: int | None,
) -> tuple[Tensor, MemoryState]:
    control = mask(control, key_padding_mask, accumulation_dtype(q))
    start = state or MemoryState.empty(k, v, control)
    out, state = attend(q, k, v, control, start, read_scale(q, scale), chunk_size)
    return out.to(q.dtype), state


def _by_kernels(
    normalised: bool,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    control: Tensor,
    key_padding_mask: Tensor | None,
    state: MemoryState | None,
    scale: float | None,
    chunk_size: int | None,
) -> tuple[Tensor, MemoryState]:
    from fairseq_memattn.attention.ops.abc.triton import causal_attention

    return causal_attention(q, k, v, control, key_padding_mask, state, scale, normalised=normalised)
