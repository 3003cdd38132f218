"""The kernel of one decoding step."""

import triton
import triton.language as tl

from fairseq_memattn.attention.ops.abc.triton.shared import (
    EMPTY,
    WRITTEN,
    logaddexp,
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
    place = (b * heads + head).to(tl.int64)
    place_of_mass = (b * control_heads + control_head).to(tl.int64) * M
    s += b.to(tl.int64) * s_b + control_head.to(tl.int64) * s_h
    d = tl.arange(0, BLOCK_D)
    query = load_token(q, q_b, q_h, b, head, d, D) * scale
    token = load_token(k, k_b, k_h, b, head, d, D)
    value = load_token(v, v_b, v_h, b, head, d, D)
    is_padding = tl.load(padding + b) != 0 if PADDED else b < 0

    high = scale * 0 + EMPTY
    total = scale * 0
    result = tl.zeros((BLOCK_D,), tl.float32)
    for m0 in tl.range(0, M, BLOCK_M, num_stages=1):
        slots = m0 + tl.arange(0, BLOCK_M)
        inside = (slots[:, None] < M) & (d[None, :] < D)
        memory = place * M * D + slots[:, None] * D + d[None, :]
        control = tl.load(s + slots, slots < M, other=0.0).to(tl.float32)
        before = tl.load(start_mass + place_of_mass + slots, slots < M, other=EMPTY)
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
