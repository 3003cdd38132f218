"""The kernels of the forward pass."""

import triton
import triton.language as tl

from fairseq_memattn.attention.ops.abc.triton.shared import (
    EMPTY,
    VARYING,
    causal_products,
    control_of,
    dot,
    fractions,
    gains,
    is_written,
    load_control,
    load_memory,
    load_tokens,
    mass_of,
    memory_products,
    pair_weights,
    place_of_chunk,
    place_of_segment,
    rows_from,
    spread,
    store_memory,
    store_tokens,
    tile_of_memory,
)


@triton.jit(do_not_specialize=VARYING)
def find_steep(
    s, padding, before, after, steep, s_b, s_h, s_t,
    chunk_starts, chunk_ends, length, chunks, total_chunks,
    M: tl.constexpr, C: tl.constexpr, BLOCK_M: tl.constexpr,
    PADDED: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Whether Z and F of chunk g cannot be held in floating point: steep (h, G)."""
    g, head = tl.program_id(0), tl.program_id(1)
    row, t0, end = place_of_chunk(g, length, chunks, chunk_starts, chunk_ends, PACKED, C)
    if t0 >= end:
        return
    place = head.to(tl.int64) * total_chunks + g
    s = rows_from(s, s_b, s_h, s_t, row, head, t0)
    t = tl.arange(0, C)
    is_safe = t0 >= 0
    for m0 in tl.range(0, M, BLOCK_M, num_stages=1):
        slots = m0 + tl.arange(0, BLOCK_M)
        inside = slots < M
        control = load_control(
            s, s_t, padding + row * length + t0, t, end - t0, slots, M, True, PADDED
        )
        old = tl.load(before + place * M + slots, inside, other=EMPTY)
        new = tl.load(after + place * M + slots, inside, other=EMPTY)
        fraction, decay = fractions(control, old, new, True)
        _, are_safe = gains(control, fraction, decay, old, True)
        is_safe = is_safe & are_safe
    tl.store(steep + place, (is_safe == 0).to(tl.int8))


@triton.jit(do_not_specialize=VARYING)
def masses(
    s, padding, added, s_b, s_h, s_t,
    chunk_starts, chunk_ends, length, chunks, total_chunks,
    M: tl.constexpr, C: tl.constexpr, BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr,
    PADDED: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """The normalisers of the tokens of chunk g alone. added: (h, G, M)"""
    g, head = tl.program_id(0), tl.program_id(1)
    row, t0, end = place_of_chunk(g, length, chunks, chunk_starts, chunk_ends, PACKED, C)
    if t0 >= end:
        return
    s = rows_from(s, s_b, s_h, s_t, row, head, t0)
    padding += row * length + t0
    added += (head.to(tl.int64) * total_chunks + g) * M
    t = tl.arange(0, C)
    for m0 in tl.range(0, M, BLOCK_M, num_stages=1):
        slots = m0 + tl.arange(0, BLOCK_M)
        control = load_control(s, s_t, padding, t, end - t0, slots, M, NORMALISED, PADDED)
        tl.store(added + slots, mass_of(control, NORMALISED), slots < M)


@triton.jit(do_not_specialize=VARYING)
def states(
    k, v, s, padding, keys, values, before, after,
    given_keys, given_values, last_keys, last_values,
    k_b, k_h, k_t, v_b, v_h, v_t, s_b, s_h, s_t,
    chunk_starts, chunk_ends, segment_starts, segment_ends,
    length, chunks, total_chunks, segments, heads, control_heads,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, S: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, PADDED: tl.constexpr, PACKED: tl.constexpr,
    GIVEN: tl.constexpr, EACH: tl.constexpr, LAST: tl.constexpr, WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The memories before each chunk of segment z, if EACH, and after its last one, if LAST.

    keys, values: (H, G, M, D); before, after: (h, G, M), the normalisers around each chunk
    given_*, last_*: (Z, H, M, D), what is written before the segment, if GIVEN, and after it
    """
    z, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    d, slots = tile_of_memory(tl.program_id(1), D, BLOCK_D, BLOCK_M)
    row, start, end, first, last = place_of_segment(
        z, length, chunks, segments, chunk_starts, chunk_ends, segment_starts, segment_ends,
        PACKED, C, S,
    )  # fmt: skip
    control_head = tl.minimum(head, control_heads - 1)
    k = rows_from(k, k_b, k_h, k_t, row, head, start)
    v = rows_from(v, v_b, v_h, v_t, row, head, start)
    s = rows_from(s, s_b, s_h, s_t, row, control_head, start)
    padding += row * length + start
    left = end - start
    t = tl.arange(0, C)
    keys += head.to(tl.int64) * total_chunks * M * D
    values += head.to(tl.int64) * total_chunks * M * D
    before += control_head.to(tl.int64) * total_chunks * M + slots
    after += control_head.to(tl.int64) * total_chunks * M + slots
    place = (z * heads + head).to(tl.int64) * M * D
    if GIVEN:
        key = load_memory(given_keys + place, slots, d, D, M)
        value = load_memory(given_values + place, slots, d, D, M)
    else:
        key = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
        value = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)

    for c in range(0, last - first):
        at = (first + c).to(tl.int64) * M
        if EACH:
            store_memory(keys + at * D, slots, d, D, M, key)
            store_memory(values + at * D, slots, d, D, M, value)
        control = load_control(s, s_t, padding, t, left, slots, M, NORMALISED, PADDED)
        old = tl.load(before + at, slots < M, other=EMPTY)
        new = tl.load(after + at, slots < M, other=EMPTY)
        fraction, decay = fractions(control, old, new, NORMALISED)
        write = tl.trans(fraction)
        token = load_tokens(k, k_t, t, left, d, D)
        key = key * decay[:, None] + dot(write, token, WIDE, PRECISION)
        token = load_tokens(v, v_t, t, left, d, D)
        value = value * decay[:, None] + dot(write, token, WIDE, PRECISION)
        k += C * k_t
        v += C * v_t
        s += C * s_t
        padding += C
        left -= C
    if LAST:
        store_memory(last_keys + place, slots, d, D, M, key)
        store_memory(last_values + place, slots, d, D, M, value)


@triton.jit(do_not_specialize=VARYING)
def attend(
    q, k, v, s, padding, keys, values, before, after, steep, out, log_total,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, s_b, s_h, s_t,
    chunk_starts, chunk_ends, length, chunks, total_chunks, heads, control_heads, scale,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, HALF: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, PADDED: tl.constexpr, PACKED: tl.constexpr,
    TILE: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The output of chunk g, the softmax over the slots in blocks of BLOCK_M.

    out: (B, T, H, D); log_total: (B, T, H), the log of the softmax's sum
    """
    g, head = tl.program_id(0), tl.program_id(1)
    row, t0, end = place_of_chunk(g, length, chunks, chunk_starts, chunk_ends, PACKED, C)
    control_head = tl.minimum(head, control_heads - 1)
    place = control_head.to(tl.int64) * total_chunks + g
    is_steep = tl.load(steep + place) != 0
    if t0 >= end:
        return
    q = rows_from(q, q_b, q_h, q_t, row, head, t0)
    k = rows_from(k, k_b, k_h, k_t, row, head, t0)
    v = rows_from(v, v_b, v_h, v_t, row, head, t0)
    s = rows_from(s, s_b, s_h, s_t, row, control_head, t0)
    padding += row * length + t0
    before += place * M
    after += place * M
    rows = (row * length + t0) * heads + head
    memory = (head.to(tl.int64) * total_chunks + g) * M * D
    keys += memory
    values += memory
    out += rows * D
    log_total += rows
    end -= t0
    if is_steep:
        _attend(
            q, q_t, k, k_t, v, v_t, s, s_t, padding, keys, values, before, after,
            out, log_total, heads, end, scale,
            D, M, C, HALF, BLOCK_M, NORMALISED, PADDED, False, TILE, TOKENS, WIDE,
            PRECISION,
        )  # fmt: skip
    else:
        _attend(
            q, q_t, k, k_t, v, v_t, s, s_t, padding, keys, values, before, after,
            out, log_total, heads, end, scale,
            D, M, C, HALF, BLOCK_M, NORMALISED, PADDED, True, TILE, TOKENS, WIDE,
            PRECISION,
        )  # fmt: skip


@triton.jit
def _attend(
    q, q_t, k, k_t, v, v_t, s, s_t, padding, keys, values, before, after, out,
    log_total, heads, end, scale,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, HALF: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, PADDED: tl.constexpr,
    FACTORED: tl.constexpr, TILE: tl.constexpr, TOKENS: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    t = tl.arange(0, C)
    lower = tl.arange(0, HALF)
    upper = HALF + lower

    scores = causal_products(q, q_t, k, k_t, t, end, D, TILE, TOKENS, PRECISION)
    peak = tl.zeros((C,), tl.float32) + EMPTY
    total = tl.zeros((C,), tl.float32)
    weights = tl.zeros((C, C), tl.float32)
    low = tl.zeros((C, HALF), tl.float32)
    high = tl.zeros((C, HALF), tl.float32)
    for m0 in tl.range(0, M, BLOCK_M, num_stages=1):
        slots = m0 + tl.arange(0, BLOCK_M)
        control, fraction, gain, kept = control_of(
            s, s_t, padding, before, after, t, end, slots, M, C, NORMALISED, PADDED, FACTORED
        )
        read = memory_products(q, q_t, t, end, keys, slots, D, M, TILE, WIDE, PRECISION)
        logits = kept * read
        logits += spread(scores, control, fraction, gain, FACTORED, C, WIDE, PRECISION)
        written = is_written(gain, FACTORED)
        logits = tl.where(written, logits * scale, EMPTY)
        higher = tl.maximum(peak, tl.max(logits, axis=1))
        p = tl.where(written, tl.exp(logits - higher[:, None]), 0.0)
        shrunk = tl.exp(peak - higher)
        total = total * shrunk + tl.sum(p, axis=1)
        weights = weights * shrunk[:, None] + pair_weights(
            p, control, fraction, gain, FACTORED, C, WIDE, PRECISION
        )
        value = load_memory(values, slots, lower, D, M)
        low = low * shrunk[:, None] + dot(p * kept, value, WIDE, PRECISION)
        value = load_memory(values, slots, upper, D, M)
        high = high * shrunk[:, None] + dot(p * kept, value, WIDE, PRECISION)
        peak = higher
    total = tl.where(total > 0, total, 1.0)
    low += dot(weights, load_tokens(v, v_t, t, end, lower, D), WIDE, PRECISION)
    store_tokens(out, heads * D, t, end, lower, D, low / total[:, None])
    high += dot(weights, load_tokens(v, v_t, t, end, upper, D), WIDE, PRECISION)
    store_tokens(out, heads * D, t, end, upper, D, high / total[:, None])
    tl.store(log_total + t * heads, peak + tl.log(total), t < end)
