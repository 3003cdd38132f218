"""One decoding step: its kernel, its operators, and what calls them."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fairseq_memattn.attention.ops.abc.triton.kernels import EMPTY, WRITTEN, logaddexp
from fairseq_memattn.attention.ops.abc.triton.launch import block, check_inputs, rows_contiguous
from fairseq_memattn.attention.ops.common import MemoryState


def step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    state: MemoryState,
    scale: float,
    in_place: bool,
    *,
    normalised: bool,
) -> tuple[Tensor, MemoryState]:
    """One position in one kernel: `causal_attention` for T = 1, without gradients.

    in_place: overwrites the state, whose tensors must be contiguous, and returns it
    """
    inputs = (q, k, v, log_alpha, *state)
    check_inputs(*inputs)
    if in_place:
        return abc_step_(*inputs, scale, normalised), state
    out, *after = abc_step(*inputs, scale, normalised)
    return out, MemoryState(*after)


@torch.library.custom_op("memattn::abc_step", mutates_args=())
def abc_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    keys: Tensor,
    values: Tensor,
    log_mass: Tensor,
    scale: float,
    normalised: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The output (B, H, 1, D) of one position, and the memory after it."""
    keys, values, log_mass = (x.contiguous() for x in (keys, values, log_mass))
    start = (keys, values, log_mass)
    end = (torch.empty_like(keys), torch.empty_like(values), torch.empty_like(log_mass))
    out = _run_step(q, k, v, log_alpha, start, end, scale, normalised)
    return out, *end


@abc_step.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    batch, heads, _, width = q.shape
    return q.new_empty((batch, heads, 1, width)), *(x.new_empty(x.shape) for x in rest[:3])


@torch.library.custom_op("memattn::abc_step_", mutates_args=("keys", "values", "log_mass"))
def abc_step_(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    keys: Tensor,
    values: Tensor,
    log_mass: Tensor,
    scale: float,
    normalised: bool,
) -> Tensor:
    """`abc_step` that writes the memory after the position over the given one."""
    # The heads of a shared control read its normaliser at different times.
    mass = log_mass if log_alpha.shape[1] == q.shape[1] else torch.empty_like(log_mass)
    start, end = (keys, values, log_mass), (keys, values, mass)
    out = _run_step(q, k, v, log_alpha, start, end, scale, normalised)
    if mass is not log_mass:
        log_mass.copy_(mass)
    return out


@abc_step_.register_fake
def _(q: Tensor, *rest: Any) -> Tensor:
    batch, heads, _, width = q.shape
    return q.new_empty((batch, heads, 1, width))


def _run_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    start: tuple[Tensor, ...],
    end: tuple[Tensor, ...],
    scale: float,
    normalised: bool,
) -> Tensor:
    batch, heads, _, width = q.shape
    slots = log_alpha.shape[3]
    out = q.new_empty((batch, heads, 1, width))
    q, k, v, log_alpha = (rows_contiguous(x) for x in (q, k, v, log_alpha))
    strides = (stride for x in (q, k, v, log_alpha) for stride in x.stride()[:2])
    with torch.cuda.device_of(q):
        step_kernel[(batch * heads,)](
            *(q, k, v, log_alpha, *start, *end, out, *strides),
            *(heads, log_alpha.shape[1], scale),
            D=width,
            M=slots,
            NORMALISED=normalised,
            **step_blocks(width, slots),
        )
    return out


def step_blocks(width: int, slots: int) -> dict[str, int]:
    """Blocks and warps of a decoding step: so many slots at a time that their memory fits."""
    block_d = block(width)
    block_m = min(block(slots), max(16, 8192 // block_d))
    num_warps = 8 if block_d * block_m > 4096 else 4
    return {"BLOCK_D": block_d, "BLOCK_M": block_m, "num_warps": num_warps}


@triton.jit
def step_kernel(
    q, k, v, log_alpha, start_keys, start_values, start_mass, end_keys, end_values, end_mass, out,
    q_b, q_h, k_b, k_h, v_b, v_h, a_b, a_h, heads, control_heads, scale,
    D: tl.constexpr, M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    NORMALISED: tl.constexpr,
):  # fmt: skip
    """Writes one token of one head and reads: memories (B, H, M, D), out (B, H, D).

    The programs of a shared control write the same normaliser; it must not be updated in place.
    """
    b, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    control_head = tl.minimum(head, control_heads - 1)
    place = (b * heads + head).to(tl.int64)
    place_of_mass = (b * control_heads + control_head).to(tl.int64) * M
    log_alpha += b.to(tl.int64) * a_b + control_head.to(tl.int64) * a_h
    d = tl.arange(0, BLOCK_D)
    query = load_token(q, q_b, q_h, b, head, d, D) * scale
    token = load_token(k, k_b, k_h, b, head, d, D)
    value = load_token(v, v_b, v_h, b, head, d, D)

    high = scale * 0 + EMPTY
    total = scale * 0
    result = tl.zeros((BLOCK_D,), tl.float32)
    for m0 in tl.range(0, M, BLOCK_M, num_stages=1):
        slots = m0 + tl.arange(0, BLOCK_M)
        inside = (slots[:, None] < M) & (d[None, :] < D)
        memory = place * M * D + slots[:, None] * D + d[None, :]
        log_alpha_block = tl.load(log_alpha + slots, slots < M, other=0.0).to(tl.float32)
        before = tl.load(start_mass + place_of_mass + slots, slots < M, other=EMPTY)
        if NORMALISED:
            log_alpha_block = tl.maximum(log_alpha_block, EMPTY, propagate_nan=tl.PropagateNan.ALL)
            log_alpha_block = tl.where(slots < M, log_alpha_block, EMPTY)
            after = logaddexp(before, log_alpha_block)
            fresh = tl.where(log_alpha_block > WRITTEN, tl.exp(log_alpha_block - after), 0.0)
            old = tl.exp(before - after)
        else:
            fresh = log_alpha_block
            after = tl.where((fresh != 0) | (before > WRITTEN), 0.0, EMPTY)
            old = after * 0 + 1.0
        # In place, a thread must not store what another one has yet to load: hence the barriers.
        read = tl.load(start_keys + memory, inside, other=0.0)
        tl.debug_barrier()
        tl.store(end_mass + place_of_mass + slots, after, slots < M)
        read = old[:, None] * read + fresh[:, None] * token[None, :]
        tl.store(end_keys + memory, read, inside)
        logits = tl.where(after > WRITTEN, tl.sum(read * query[None, :], axis=1), EMPTY)
        higher = tl.maximum(high, tl.max(logits, axis=0))
        p = tl.where(after > WRITTEN, tl.exp(logits - higher), 0.0)
        shrunk = tl.exp(high - higher)
        total = total * shrunk + tl.sum(p, axis=0)
        read = tl.load(start_values + memory, inside, other=0.0)
        tl.debug_barrier()
        read = old[:, None] * read + fresh[:, None] * value[None, :]
        tl.store(end_values + memory, read, inside)
        result = result * shrunk + tl.sum(p[:, None] * read, axis=0)
        high = higher
    result /= tl.where(total > 0, total, 1.0)
    tl.store(out + place * D + d, result.to(out.dtype.element_ty), d < D)


@triton.jit
def load_token(x, x_b, x_h, b, head, d, D: tl.constexpr):
    """The only position of a row and head: (D,), in float32."""
    pointer = x + b.to(tl.int64) * x_b + head.to(tl.int64) * x_h
    return tl.load(pointer + d, d < D, other=0.0).to(tl.float32)
