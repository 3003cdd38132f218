"""The kernel of one decoding step."""

import triton
import triton.language as tl

from fairseq_memattn.attention.ops.abc.triton.shared import (
    EMPTY,
    WRITTEN,
    logaddexp,
    rows_from,
    softmax_of_slots,
)


@triton.jit
def step(
    q, k, v, s, padding, start_keys, start_values, start_mass, end_keys, end_values, end_mass, out,
    q_b, q_h, k_b, k_h, v_b, v_h, s_b, s_h, heads, control_heads, scale,
    D: tl.constexpr, M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    NORMALISED: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Writes one token of one head and reads: memories (B, H, M, D), out (B, H, D).

    The programs of a shared control write the same normaliser; it must not be updated in place.
    """
    b, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    control_head = tl.minimum(head, control_heads - 1)
    d, slots = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_M)
    inside = (slots[:, None] < M) & (d[None, :] < D)
    place = (b * heads + head).to(tl.int64) * M * D + slots[:, None] * D + d[None, :]
    place_of_mass = (b * control_heads + control_head).to(tl.int64) * M + slots
    token = tl.load(rows_from(k, k_b, k_h, 0, b.to(tl.int64), head, b) + d, d < D, other=0.0)
    value = tl.load(rows_from(v, v_b, v_h, 0, b.to(tl.int64), head, b) + d, d < D, other=0.0)
    query = tl.load(rows_from(q, q_b, q_h, 0, b.to(tl.int64), head, b) + d, d < D, other=0.0)
    control = tl.load(
        rows_from(s, s_b, s_h, 0, b.to(tl.int64), control_head, b) + slots, slots < M, other=0.0
    ).to(tl.float32)
    before = tl.load(start_mass + place_of_mass, slots < M, other=EMPTY)
    is_padding = tl.load(padding + b) != 0 if PADDED else b < 0
    if NORMALISED:
        control = tl.maximum(control, EMPTY, propagate_nan=tl.PropagateNan.ALL)
        control = tl.where(is_padding | (slots >= M), EMPTY, control)
        after = logaddexp(before, control)
        fresh = tl.where(control > WRITTEN, tl.exp(control - after), 0.0)
        old = tl.exp(before - after)
    else:
        fresh = tl.where(is_padding | (slots >= M), 0.0, control)
        after = tl.where((fresh != 0) | (before > WRITTEN), 0.0, EMPTY)
        old = after * 0 + 1.0
    # In place, a thread must not store what another one has yet to load: hence the barriers.
    memory = tl.load(start_keys + place, inside, other=0.0)
    tl.debug_barrier()
    memory = old[:, None] * memory + fresh[:, None] * token.to(tl.float32)[None, :]
    tl.store(end_keys + place, memory, inside)
    logits = scale * tl.sum(memory * query.to(tl.float32)[None, :], axis=1)
    memory = tl.load(start_values + place, inside, other=0.0)
    tl.debug_barrier()
    memory = old[:, None] * memory + fresh[:, None] * value.to(tl.float32)[None, :]
    tl.store(end_values + place, memory, inside)
    p = softmax_of_slots(logits[None, :], (after > WRITTEN)[None, :])
    result = tl.sum(tl.trans(p) * memory, axis=0)
    at = (b * heads + head).to(tl.int64) * D + d
    tl.store(out + at, result.to(out.dtype.element_ty), d < D)
    tl.store(end_mass + place_of_mass, after, slots < M)
