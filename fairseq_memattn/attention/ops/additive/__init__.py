"""Bounded memories whose control vectors nothing divides: Linformer, random, global, compressive.

Source: Peng et al., "ABC: Attention with Bounded-memory Control", equations 3-5 and Table 1. As
in `ops.abc`, but with the control vectors phi themselves, of any sign:

    K~_t = K~_{t-1} + phi_t (x) k_t,   V~_t = V~_{t-1} + phi_t (x) v_t

Where phi is 0 nothing is written, and a slot into which nothing was written is never read. The
memory is a `MemoryState` whose log_mass is 0 in the slots that hold something.
"""

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.abc import causal_backends, go_on, read_memory, step_backends
from fairseq_memattn.attention.ops.abc.chunked import additive_causal_attention
from fairseq_memattn.attention.ops.additive import naive
from fairseq_memattn.attention.ops.common import (
    MemoryState,
    accumulation_dtype,
    choose,
    full_precision,
    mass_where,
    omit_padding,
    read_scale,
)
from fairseq_memattn.attention.ops.context_parallel import memory_before, sums

BACKENDS = causal_backends(additive_causal_attention, naive.causal_attention, normalised=False)


@full_precision
def additive_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: Tensor,
    *,
    causal: bool,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
    chunk_size: int | None = None,
    context_group: ProcessGroup | None = None,
) -> Tensor:
    """Attention over whole sequences, in time and memory linear in their length.

    phi: (B, H, S, M), or (B, 1, S, M) if the heads share one control; everything else, errors
    included, as in `abc_attention`.
    """
    check.shapes(q, k, v, phi, key_padding_mask, "phi")
    check.options(causal, chunk_size)
    check.context(causal, context_group)
    if not causal:
        return read_memory(q, additive_write(k, v, phi, key_padding_mask), scale)
    check.causal(q, k)
    phi = omit_padding(phi, key_padding_mask)
    attend = choose(BACKENDS, q, phi.shape[3])
    state = None
    if context_group is not None:
        state = memory_before(additive_write(k, v, phi), context_group, weigh=sums)
    out, _ = attend(q, k, v, phi, state, read_scale(q, scale), chunk_size)
    return out


@full_precision
def additive_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: Tensor,
    state: MemoryState | None,
    *,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
    context_group: ProcessGroup | None = None,
) -> tuple[Tensor, MemoryState]:
    """Continues causal attention by T >= 1 positions (equation 5), as `abc_step` does."""
    check.shapes(q, k, v, phi, key_padding_mask, "phi")
    check.causal(q, k)
    if state is not None:
        check.memory_state(state, k, phi)
    scale = read_scale(q, scale)
    phi = omit_padding(phi, key_padding_mask)
    if context_group is not None:
        written = additive_write(k, v, phi)
        state = memory_before(written, context_group, weigh=sums, start=state)
    return go_on(BACKENDS, STEPS, (q, k, v, phi), state, scale)


@full_precision
def additive_write(
    k: Tensor, v: Tensor, phi: Tensor, key_padding_mask: Tensor | None = None
) -> MemoryState:
    """Writes a whole sequence into a memory (equation 3); `abc_read` reads it."""
    check.shapes(None, k, v, phi, key_padding_mask, "phi")
    return _written(k, v, omit_padding(phi, key_padding_mask).to(accumulation_dtype(k)))


def _written(k: Tensor, v: Tensor, phi: Tensor) -> MemoryState:
    write = phi.transpose(2, 3)
    log_mass = mass_where((phi != 0).any(dim=2), phi.dtype)
    return MemoryState(write @ k.to(phi.dtype), write @ v.to(phi.dtype), log_mass)


def _write_one(k: Tensor, v: Tensor, phi: Tensor, state: MemoryState) -> MemoryState:
    written = _written(k, v, phi.to(accumulation_dtype(k)))
    return MemoryState(
        state.keys + written.keys,
        state.values + written.values,
        torch.maximum(state.log_mass, written.log_mass),
    )


STEPS = step_backends(_write_one, normalised=False)
