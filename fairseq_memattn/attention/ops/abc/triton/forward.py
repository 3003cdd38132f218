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
    mass_after,
    memory_products,
    pair_weights,
    place_of_chunk,
    place_of_sequence,
    rows_from,
    spread,
    store_tokens,
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
def states(
    k, v, s, padding, keys, values, before, after,
    start_keys, start_values, start_mass, end_keys, end_values, end_mass,
    k_b, k_h, k_t, v_b, v_h, v_t, s_b, s_h, s_t,
    sequence_ends, first_chunks, length, chunks, total_chunks, heads, control_heads,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, PADDED: tl.constexpr, PACKED: tl.constexpr,
    STARTED: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The memories before each chunk of sequence n, and after the last.

    keys, values: (H, G, M, D); before, after: (h, G, M), the normalisers around each chunk
    start_*, end_*: (N, H, M, D) and (N, h, M)
    """
    n, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    tiles_d: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D
    tile_d, tile_m = tl.program_id(1) % tiles_d, tl.program_id(1) // tiles_d
    d = tile_d * BLOCK_D + tl.arange(0, BLOCK_D)
    slots = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    control_head = tl.minimum(head, control_heads - 1)
    writes_mass = slots < tl.where(tile_d + head - control_head == 0, M, 0)
    row, start, end, first, last = place_of_sequence(
        n, length, chunks, sequence_ends, first_chunks, PACKED
    )  # fmt: skip
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

    inside = (slots[:, None] < M) & (d[None, :] < D)
    memory = slots[:, None] * D + d[None, :]
    place = (n * heads + head).to(tl.int64) * M * D + memory
    place_of_mass = (n * control_heads + control_head).to(tl.int64) * M + slots
    if STARTED:
        key = tl.load(start_keys + place, inside, other=0.0)
        value = tl.load(start_values + place, inside, other=0.0)
        mass = tl.load(start_mass + place_of_mass, slots < M, other=EMPTY)
    else:
        key = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
        value = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
        mass = tl.zeros((BLOCK_M,), tl.float32) + EMPTY

    for c in range(0, last - first):
        at = (first + c).to(tl.int64) * M
        tl.store(keys + at * D + memory, key.to(keys.dtype.element_ty), inside)
        tl.store(values + at * D + memory, value.to(values.dtype.element_ty), inside)
        tl.store(before + at, mass, writes_mass)
        control = load_control(s, s_t, padding, t, left, slots, M, NORMALISED, PADDED)
        next_mass = mass_after(control, mass, NORMALISED)
        tl.store(after + at, next_mass, writes_mass)
        fraction, decay = fractions(control, mass, next_mass, NORMALISED)
        write = tl.trans(fraction)
        token = load_tokens(k, k_t, t, left, d, D)
        key = key * decay[:, None] + dot(write, token, WIDE, PRECISION)
        token = load_tokens(v, v_t, t, left, d, D)
        value = value * decay[:, None] + dot(write, token, WIDE, PRECISION)
        mass = next_mass
        k += C * k_t
        v += C * v_t
        s += C * s_t
        padding += C
        left -= C

    tl.store(end_keys + place, key, inside)
    tl.store(end_values + place, value, inside)
    tl.store(end_mass + place_of_mass, mass, writes_mass)


@triton.jit(do_not_specialize=VARYING)
def attend(
    q, k, v, s, padding, keys, values, before, after, steep, out, log_total,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, s_b, s_h, s_t,
    chunk_starts, chunk_ends, length, chunks, total_chunks, heads, control_heads, scale,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, HALF: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, PADDED: tl.constexpr, PACKED: tl.constexpr,
    FACTORED: tl.constexpr, TILE: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr,
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
    if t0 >= end or is_steep == FACTORED:
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
    end -= t0
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
        read = memory_products(q, q_t, t, end, keys + memory, slots, D, M, TILE, WIDE, PRECISION)
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
        value = load_memory(values + memory, slots, lower, D, M)
        low = low * shrunk[:, None] + dot(p * kept, value, WIDE, PRECISION)
        value = load_memory(values + memory, slots, upper, D, M)
        high = high * shrunk[:, None] + dot(p * kept, value, WIDE, PRECISION)
        peak = higher
    total = tl.where(total > 0, total, 1.0)
    low += dot(weights, load_tokens(v, v_t, t, end, lower, D), WIDE, PRECISION)
    store_tokens(out + rows * D, heads * D, t, end, lower, D, low / total[:, None])
    high += dot(weights, load_tokens(v, v_t, t, end, upper, D), WIDE, PRECISION)
    store_tokens(out + rows * D, heads * D, t, end, upper, D, high / total[:, None])
    tl.store(log_total + rows + t * heads, peak + tl.log(total), t < end)
