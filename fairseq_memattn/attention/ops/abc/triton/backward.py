"""The kernels of the backward pass. The derivatives are those of `chunked.py`."""

import triton
import triton.language as tl

from fairseq_memattn.attention.ops.abc.triton.shared import (
    EMPTY,
    VARYING,
    causal_products,
    dot,
    fractions,
    gains,
    gather,
    is_written,
    load_log_alpha,
    load_memory,
    load_tokens,
    memory_products,
    normalisers,
    pair_weights,
    place_of_chunk,
    place_of_segment,
    rows_from,
    spread,
    store_memory,
    store_tokens,
    sums_to_the_end,
    tile_of_memory,
    write_weights,
)

SMALLEST_SUM = tl.constexpr(1e-30)  # of p, which is 0 where nothing is written


@triton.jit(do_not_specialize=VARYING)
def attend_queries(
    q, k, v, log_alpha, keys, values, before, after, steep, log_total, grad_out,
    means, grad_q, grad_log_alpha, reading, grad_logits, sums,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, a_b, a_h, a_t, o_b, o_h, o_t,
    chunk_starts, chunk_ends, length, chunks, total_chunks, heads, control_heads, scale, group,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, HALF: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, PACKED: tl.constexpr,
    MEANS: tl.constexpr, TILE: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of chunk g, and what the other kernels of the backward pass need of its queries.

    If MEANS, <p, dp> alone: before the other run, where the slots take more than one block. It is
    <out, dout>, as FlashAttention computes it, but out is rounded: the sum of da would not be 0,
    and dq would have a multiple of what all keys share. Of p, too, only the sum over the slots is 1
    that is formed here.

    grad_q: (B, T, H, D); grad_log_alpha: (B, T, H, M), here - F_j sum_{t >= j} y_t Z_t
    means: (B, T, H), of the run with MEANS
    reading, grad_logits: (B, T, group, M), p and scale da; sums: (group, G, M), of y kept
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
    grad_out = rows_from(grad_out, o_b, o_h, o_t, row, head, t0)
    log_alpha = rows_from(log_alpha, a_b, a_h, a_t, row, control_head, t0)
    before += place * M
    after += place * M
    rows = (row * length + t0) * heads + head
    reading += ((row * length + t0) * group + head) * M
    grad_logits += ((row * length + t0) * group + head) * M
    place = head.to(tl.int64) * total_chunks + g
    keys += place * M * D
    values += place * M * D
    sums += place * M
    log_total += rows
    means += rows
    grad_q += rows * D
    grad_log_alpha += rows * M
    end -= t0
    if is_steep:
        _attend_queries(
            q, q_t, k, k_t, v, v_t, log_alpha, a_t, keys, values, before, after, log_total,
            grad_out, o_t, means, grad_q, grad_log_alpha, reading, grad_logits, sums, heads, group,
            end, scale,
            D, M, C, HALF, BLOCK_M, NORMALISED, MEANS, False, TILE, TOKENS, WIDE, PRECISION,
        )  # fmt: skip
    else:
        _attend_queries(
            q, q_t, k, k_t, v, v_t, log_alpha, a_t, keys, values, before, after, log_total,
            grad_out, o_t, means, grad_q, grad_log_alpha, reading, grad_logits, sums, heads, group,
            end, scale,
            D, M, C, HALF, BLOCK_M, NORMALISED, MEANS, True, TILE, TOKENS, WIDE, PRECISION,
        )  # fmt: skip


@triton.jit
def _attend_queries(
    q, q_t, k, k_t, v, v_t, log_alpha, a_t, keys, values, before, after, log_total, grad_out,
    o_t, means, grad_q, grad_log_alpha, reading, grad_logits, sums, heads, group, end, scale,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, HALF: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, MEANS: tl.constexpr,
    FACTORED: tl.constexpr, TILE: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    t = tl.arange(0, C)
    lower = tl.arange(0, HALF)
    upper = HALF + lower

    scores = causal_products(q, q_t, k, k_t, t, end, D, TILE, TOKENS, PRECISION)
    grad_scores = causal_products(grad_out, o_t, v, v_t, t, end, D, TILE, TOKENS, PRECISION)
    log_sum = tl.load(log_total + t * heads, t < end, other=0.0)[:, None]
    if MEANS:
        mean = tl.zeros((C,), tl.float32)
    else:
        mean = tl.load(means + t * heads, (t < end) & (M > BLOCK_M), other=0.0)
    total = tl.zeros((C,), tl.float32)
    weights = tl.zeros((C, C), tl.float32)
    low = tl.zeros((C, HALF), tl.float32)
    high = tl.zeros((C, HALF), tl.float32)
    for m0 in tl.range(0, M, BLOCK_M, num_stages=1):
        slots = m0 + tl.arange(0, BLOCK_M)
        log_alpha_block, fraction, gain, kept = write_weights(
            log_alpha, a_t, before, after, t, end, slots, M, C, NORMALISED, FACTORED
        )
        logits = kept * memory_products(q, q_t, t, end, keys, slots, D, M, TILE, WIDE, PRECISION)
        logits += spread(scores, log_alpha_block, fraction, gain, FACTORED, C, WIDE, PRECISION)
        logits *= scale
        p = tl.where(is_written(gain, FACTORED), tl.exp(tl.minimum(logits - log_sum, 0.0)), 0.0)
        y = kept * memory_products(
            grad_out, o_t, t, end, values, slots, D, M, TILE, WIDE, PRECISION
        )
        y += spread(grad_scores, log_alpha_block, fraction, gain, FACTORED, C, WIDE, PRECISION)
        y = p * y  # p dp
        if MEANS:
            mean += tl.sum(y, axis=1)
            total += tl.sum(p, axis=1)
        else:
            store_tokens(reading, group * M, t, end, slots, M, p)
            if M <= BLOCK_M:
                mean = tl.sum(y, axis=1) / tl.maximum(tl.sum(p, axis=1), SMALLEST_SUM)
            grad = y - p * mean[:, None]
            if NORMALISED:
                y += logits * grad
                later = sums_to_the_end(y, log_alpha_block, fraction, gain, FACTORED, C)
                store_tokens(grad_log_alpha, heads * M, t, end, slots, M, -later)
                tl.store(sums + slots, tl.sum(y * kept, axis=0), slots < M)
            grad *= scale
            store_tokens(grad_logits, group * M, t, end, slots, M, grad)
            weights += pair_weights(
                grad, log_alpha_block, fraction, gain, FACTORED, C, WIDE, PRECISION
            )
            low += dot(grad * kept, load_memory(keys, slots, lower, D, M), WIDE, PRECISION)
            high += dot(grad * kept, load_memory(keys, slots, upper, D, M), WIDE, PRECISION)
    if MEANS:
        tl.store(means + t * heads, mean / tl.maximum(total, SMALLEST_SUM), t < end)
    else:
        low += dot(weights, load_tokens(k, k_t, t, end, lower, D), WIDE, PRECISION)
        store_tokens(grad_q, heads * D, t, end, lower, D, low)
        high += dot(weights, load_tokens(k, k_t, t, end, upper, D), WIDE, PRECISION)
        store_tokens(grad_q, heads * D, t, end, upper, D, high)


@triton.jit(do_not_specialize=VARYING)
def states_back(
    q, log_alpha, before, after, steep, grad_out, reading, grad_logits, sums, grad_mass,
    grad_keys, grad_values, given_keys, given_values, given_mass, last_keys, last_values, last_mass,
    q_b, q_h, q_t, a_b, a_h, a_t, o_b, o_h, o_t,
    chunk_starts, chunk_ends, segment_starts, segment_ends,
    length, chunks, total_chunks, segments, heads, control_heads,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, S: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, PACKED: tl.constexpr,
    GIVEN: tl.constexpr, EACH: tl.constexpr, LAST: tl.constexpr, WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """dH, dG and dU at the end of each chunk of segment z, if EACH, and before it, if LAST.

    grad_keys, grad_values: (H, G, M, D); sums, grad_mass: (H, G, M), the sums of y kept, and dU.
        Not one tensor: each element is loaded by several threads, and stored by one
    given_*, last_*: (Z, H, M, D) and (Z, H, M), the gradients of the memory after the segment, if
        GIVEN, and of that before it
    """
    z, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    tile = tl.program_id(1)
    d, slots = tile_of_memory(tile, D, BLOCK_D, BLOCK_M)
    row, start, end, first, last = place_of_segment(
        z, length, chunks, segments, chunk_starts, chunk_ends, segment_starts, segment_ends,
        PACKED, C, S,
    )  # fmt: skip
    control_head = tl.minimum(head, control_heads - 1)
    has_mass = slots < tl.where(tile % ((D + BLOCK_D - 1) // BLOCK_D) == 0, M, 0)
    last_start = start + (last - first - 1) * C
    q = rows_from(q, q_b, q_h, q_t, row, head, last_start)
    grad_out = rows_from(grad_out, o_b, o_h, o_t, row, head, last_start)
    log_alpha = rows_from(log_alpha, a_b, a_h, a_t, row, control_head, last_start)
    rows = ((row * length + last_start) * heads + head) * M
    reading += rows
    grad_logits += rows
    left = end - last_start
    t = tl.arange(0, C)
    grad_keys += head.to(tl.int64) * total_chunks * M * D
    grad_values += head.to(tl.int64) * total_chunks * M * D
    sums += head.to(tl.int64) * total_chunks * M + slots
    grad_mass += head.to(tl.int64) * total_chunks * M + slots
    before += control_head.to(tl.int64) * total_chunks * M + slots
    after += control_head.to(tl.int64) * total_chunks * M + slots
    steep += control_head.to(tl.int64) * total_chunks
    place = (z * heads + head).to(tl.int64) * M
    if GIVEN:
        key = load_memory(given_keys + place * D, slots, d, D, M)
        value = load_memory(given_values + place * D, slots, d, D, M)
        mass = tl.load(given_mass + place + slots, slots < M, other=0.0)
    else:
        key = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
        value = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
        mass = tl.zeros((BLOCK_M,), tl.float32)

    for c in range(1, last - first + 1):
        at = (last - c).to(tl.int64) * M
        if EACH:
            store_memory(grad_keys + at * D, slots, d, D, M, key)
            store_memory(grad_values + at * D, slots, d, D, M, value)
        log_alpha_block = load_log_alpha(log_alpha, a_t, t, left, slots, M, NORMALISED)
        old = tl.load(before + at, slots < M, other=EMPTY)
        new = tl.load(after + at, slots < M, other=EMPTY)
        fraction, decay = fractions(log_alpha_block, old, new, NORMALISED)
        if tl.load(steep + last - c) != 0:
            kept = tl.exp(old[None, :] - normalisers(log_alpha_block, old, C))
        else:
            gain, _ = gains(log_alpha_block, fraction, decay, old, NORMALISED)
            kept = gain * decay[None, :]
        read = load_tokens(reading, heads * M, t, left, slots, M) * kept
        token = load_tokens(grad_out, o_t, t, left, d, D)
        value = value * decay[:, None] + dot(tl.trans(read), token, WIDE, PRECISION)
        read = load_tokens(grad_logits, heads * M, t, left, slots, M) * kept
        token = load_tokens(q, q_t, t, left, d, D)
        key = key * decay[:, None] + dot(tl.trans(read), token, WIDE, PRECISION)
        if NORMALISED:
            if EACH:
                tl.store(grad_mass + at, mass, has_mass)
            mass = mass * decay + tl.load(sums + at, slots < M, other=0.0)
        q -= C * q_t
        grad_out -= C * o_t
        log_alpha -= C * a_t
        reading -= C * heads * M
        grad_logits -= C * heads * M
        left += C
    if LAST:
        store_memory(last_keys + place * D, slots, d, D, M, key)
        store_memory(last_values + place * D, slots, d, D, M, value)
        tl.store(last_mass + place + slots, mass, has_mass)


@triton.jit(do_not_specialize=VARYING)
def attend_tokens(
    x, y, log_alpha, before, after, steep, weights, later, grad_mass, grad_y, grad_log_alpha,
    x_b, x_h, x_t, y_b, y_h, y_t, a_b, a_h, a_t,
    chunk_starts, chunk_ends, length, chunks, total_chunks, heads, control_heads, group,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, HALF: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, PACKED: tl.constexpr,
    OF_KEYS: tl.constexpr, TILE: tl.constexpr, TOKENS: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dv of chunk g, or dk if OF_KEYS, and its part of ds, which is added to grad_log_alpha.

    x, y: dout and v, or q and k; weights: (B, T, group, M), reading or grad_logits;
    later: (group, G, M, D), the gradient of the values' memory, or of the keys', after the chunk
    grad_y: (B, T, H, D); grad_log_alpha, grad_mass: as in `attend_queries`
    """
    g, head = tl.program_id(0), tl.program_id(1)
    row, t0, end = place_of_chunk(g, length, chunks, chunk_starts, chunk_ends, PACKED, C)
    control_head = tl.minimum(head, control_heads - 1)
    place = control_head.to(tl.int64) * total_chunks + g
    is_steep = tl.load(steep + place) != 0
    if t0 >= end:
        return
    x = rows_from(x, x_b, x_h, x_t, row, head, t0)
    y = rows_from(y, y_b, y_h, y_t, row, head, t0)
    log_alpha = rows_from(log_alpha, a_b, a_h, a_t, row, control_head, t0)
    before += place * M
    after += place * M
    rows = (row * length + t0) * heads + head
    weights += ((row * length + t0) * group + head) * M
    grad_log_alpha += rows * M
    place = head.to(tl.int64) * total_chunks + g
    later += place * M * D
    grad_mass += place * M
    grad_y += rows * D
    end -= t0
    if is_steep:
        _attend_tokens(
            x, x_t, y, y_t, log_alpha, a_t, before, after, weights, later, grad_mass, grad_y,
            grad_log_alpha, heads, group, end,
            D, M, C, HALF, BLOCK_M, NORMALISED, OF_KEYS, False, TILE, TOKENS, WIDE,
            PRECISION,
        )  # fmt: skip
    else:
        _attend_tokens(
            x, x_t, y, y_t, log_alpha, a_t, before, after, weights, later, grad_mass, grad_y,
            grad_log_alpha, heads, group, end,
            D, M, C, HALF, BLOCK_M, NORMALISED, OF_KEYS, True, TILE, TOKENS, WIDE,
            PRECISION,
        )  # fmt: skip


@triton.jit
def _attend_tokens(
    x, x_t, y, y_t, log_alpha, a_t, before, after, weights, later, grad_mass, grad_y,
    grad_log_alpha, heads, group, end,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, HALF: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, OF_KEYS: tl.constexpr,
    FACTORED: tl.constexpr, TILE: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    t = tl.arange(0, C)
    lower = tl.arange(0, HALF)
    upper = HALF + lower

    products = causal_products(x, x_t, y, y_t, t, end, D, TILE, TOKENS, PRECISION)
    pairs = tl.zeros((C, C), tl.float32)
    low = tl.zeros((C, HALF), tl.float32)
    high = tl.zeros((C, HALF), tl.float32)
    for m0 in tl.range(0, M, BLOCK_M, num_stages=1):
        slots = m0 + tl.arange(0, BLOCK_M)
        log_alpha_block, fraction, gain, kept = write_weights(
            log_alpha, a_t, before, after, t, end, slots, M, C, NORMALISED, FACTORED
        )
        # What the chunks after this one read of its tokens
        grad = memory_products(y, y_t, t, end, later, slots, D, M, TILE, WIDE, PRECISION)
        low += dot(fraction, load_memory(later, slots, lower, D, M), WIDE, PRECISION)
        high += dot(fraction, load_memory(later, slots, upper, D, M), WIDE, PRECISION)
        if NORMALISED:
            if OF_KEYS:
                grad -= tl.load(grad_mass + slots, slots < M, other=0.0)[None, :]
            grad *= fraction
        if NORMALISED or OF_KEYS:
            grad += load_tokens(grad_log_alpha, heads * M, t, end, slots, M)
        # What the queries of this one read
        p = load_tokens(weights, group * M, t, end, slots, M).to(tl.float32)
        pairs += pair_weights(p, log_alpha_block, fraction, gain, FACTORED, C, WIDE, PRECISION)
        grad += gather(
            products, p, log_alpha_block, fraction, gain, NORMALISED, FACTORED, C, WIDE, PRECISION
        )
        store_tokens(grad_log_alpha, heads * M, t, end, slots, M, grad)
    low += dot(tl.trans(pairs), load_tokens(x, x_t, t, end, lower, D), WIDE, PRECISION)
    store_tokens(grad_y, heads * D, t, end, lower, D, low)
    high += dot(tl.trans(pairs), load_tokens(x, x_t, t, end, upper, D), WIDE, PRECISION)
    store_tokens(grad_y, heads * D, t, end, upper, D, high)
