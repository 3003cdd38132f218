"""The kernels of the forward pass, and those that go through the chunks of a sequence.

What each chunk adds is there before the latter begin, so that a step is a multiplication and a sum.
"""

import triton
import triton.language as tl

from fairseq_memattn.attention.ops.abc.triton.shared import (
    EMPTY,
    VARYING,
    causal_products,
    decay_of,
    dot,
    fractions,
    gains,
    is_written,
    join_masses,
    load_log_alpha,
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
    write_weights,
)

STAGES = tl.constexpr(4)  # a normaliser is loaded three steps before its own


@triton.jit(do_not_specialize=VARYING)
def find_steep(
    log_alpha, before, after, steep, a_b, a_h, a_t,
    chunk_starts, chunk_ends, length, chunks, total_chunks,
    M: tl.constexpr, C: tl.constexpr, BLOCK_M: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Whether Z and F of chunk g cannot be held in floating point: steep (h, G)."""
    g, head = tl.program_id(0), tl.program_id(1)
    row, t0, end = place_of_chunk(g, length, chunks, chunk_starts, chunk_ends, PACKED, C)
    if t0 >= end:
        return
    place = head.to(tl.int64) * total_chunks + g
    log_alpha = rows_from(log_alpha, a_b, a_h, a_t, row, head, t0)
    t = tl.arange(0, C)
    is_safe = t0 >= 0
    for m0 in tl.range(0, M, BLOCK_M, num_stages=1):
        slots = m0 + tl.arange(0, BLOCK_M)
        inside = slots < M
        log_alpha_block = load_log_alpha(log_alpha, a_t, t, end - t0, slots, M, True)
        old = tl.load(before + place * M + slots, inside, other=EMPTY)
        new = tl.load(after + place * M + slots, inside, other=EMPTY)
        fraction, decay = fractions(log_alpha_block, old, new, True)
        _, are_safe = gains(log_alpha_block, fraction, decay, old, True)
        is_safe = is_safe & are_safe
    tl.store(steep + place, (is_safe == 0).to(tl.int8))


@triton.jit(do_not_specialize=VARYING)
def masses(
    log_alpha, added, a_b, a_h, a_t,
    chunk_starts, chunk_ends, length, chunks, total_chunks,
    M: tl.constexpr, C: tl.constexpr, BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr,
    PACKED: tl.constexpr,
):  # fmt: skip
    """The normalisers of the tokens of chunk g alone. added: (h, G, M)"""
    g, head = tl.program_id(0), tl.program_id(1)
    row, t0, end = place_of_chunk(g, length, chunks, chunk_starts, chunk_ends, PACKED, C)
    if t0 >= end:
        return
    log_alpha = rows_from(log_alpha, a_b, a_h, a_t, row, head, t0)
    added += (head.to(tl.int64) * total_chunks + g) * M
    t = tl.arange(0, C)
    for m0 in tl.range(0, M, BLOCK_M, num_stages=1):
        slots = m0 + tl.arange(0, BLOCK_M)
        log_alpha_block = load_log_alpha(log_alpha, a_t, t, end - t0, slots, M, NORMALISED)
        tl.store(added + slots, mass_of(log_alpha_block, NORMALISED), slots < M)


@triton.jit(do_not_specialize=VARYING)
def states(
    k, v, log_alpha, keys, values, before, after,
    given_keys, given_values, last_keys, last_values,
    k_b, k_h, k_t, v_b, v_h, v_t, a_b, a_h, a_t,
    chunk_starts, chunk_ends, segment_starts, segment_ends,
    length, chunks, total_chunks, segments, heads, control_heads,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, S: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, PACKED: tl.constexpr,
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
    log_alpha = rows_from(log_alpha, a_b, a_h, a_t, row, control_head, start)
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
        log_alpha_block = load_log_alpha(log_alpha, a_t, t, left, slots, M, NORMALISED)
        old = tl.load(before + at, slots < M, other=EMPTY)
        new = tl.load(after + at, slots < M, other=EMPTY)
        fraction, decay = fractions(log_alpha_block, old, new, NORMALISED)
        write = tl.trans(fraction)
        token = load_tokens(k, k_t, t, left, d, D)
        key = key * decay[:, None] + dot(write, token, WIDE, PRECISION)
        token = load_tokens(v, v_t, t, left, d, D)
        value = value * decay[:, None] + dot(write, token, WIDE, PRECISION)
        k += C * k_t
        v += C * v_t
        log_alpha += C * a_t
        left -= C
    if LAST:
        store_memory(last_keys + place, slots, d, D, M, key)
        store_memory(last_values + place, slots, d, D, M, value)


@triton.jit(do_not_specialize=VARYING)
def attend(
    q, k, v, log_alpha, keys, values, before, after, steep, out, log_total,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, a_b, a_h, a_t,
    chunk_starts, chunk_ends, length, chunks, total_chunks, heads, control_heads, scale,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, HALF: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, PACKED: tl.constexpr,
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
    log_alpha = rows_from(log_alpha, a_b, a_h, a_t, row, control_head, t0)
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
            q, q_t, k, k_t, v, v_t, log_alpha, a_t, keys, values, before, after,
            out, log_total, heads, end, scale,
            D, M, C, HALF, BLOCK_M, NORMALISED, False, TILE, TOKENS, WIDE,
            PRECISION,
        )  # fmt: skip
    else:
        _attend(
            q, q_t, k, k_t, v, v_t, log_alpha, a_t, keys, values, before, after,
            out, log_total, heads, end, scale,
            D, M, C, HALF, BLOCK_M, NORMALISED, True, TILE, TOKENS, WIDE,
            PRECISION,
        )  # fmt: skip


@triton.jit
def _attend(
    q, q_t, k, k_t, v, v_t, log_alpha, a_t, keys, values, before, after, out,
    log_total, heads, end, scale,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, HALF: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr,
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
        log_alpha_block, fraction, gain, kept = write_weights(
            log_alpha, a_t, before, after, t, end, slots, M, C, NORMALISED, FACTORED
        )
        read = memory_products(q, q_t, t, end, keys, slots, D, M, TILE, WIDE, PRECISION)
        logits = kept * read
        logits += spread(scores, log_alpha_block, fraction, gain, FACTORED, C, WIDE, PRECISION)
        written = is_written(gain, FACTORED)
        logits = tl.where(written, logits * scale, EMPTY)
        higher = tl.maximum(peak, tl.max(logits, axis=1))
        p = tl.where(written, tl.exp(logits - higher[:, None]), 0.0)
        shrunk = tl.exp(peak - higher)
        total = total * shrunk + tl.sum(p, axis=1)
        weights = weights * shrunk[:, None] + pair_weights(
            p, log_alpha_block, fraction, gain, FACTORED, C, WIDE, PRECISION
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


@triton.jit
def parts_of_sequence(n, parts, first_parts, PACKED: tl.constexpr):
    """The first chunk, or segment, of sequence n, and that of the next one."""
    if PACKED:
        first = tl.load(first_parts + n)
        end = tl.load(first_parts + n + 1)
    else:
        first = n * parts
        end = first + parts
    return first, end


@triton.jit(do_not_specialize=VARYING)
def scan_masses(
    added, before, after, start_mass, end_mass,
    first_chunks, chunks, total_chunks, control_heads,
    M: tl.constexpr, BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, PACKED: tl.constexpr,
    STARTED: tl.constexpr,
):  # fmt: skip
    """The normalisers around each chunk of sequence n, and after the last.

    added: (h, G, M), of the tokens of each chunk alone; before, after: (h, G, M)
    start_mass, end_mass: (N, h, M)
    """
    n, head = tl.program_id(0) // control_heads, tl.program_id(0) % control_heads
    slots = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = slots < M
    first, end = parts_of_sequence(n, chunks, first_chunks, PACKED)
    place = (n * control_heads + head).to(tl.int64) * M + slots
    if STARTED:
        mass = tl.load(start_mass + place, inside, other=EMPTY)
    else:
        mass = tl.zeros((BLOCK_M,), tl.float32) + EMPTY
    of_head = head.to(tl.int64) * total_chunks
    for c in tl.range(0, end - first, num_stages=STAGES):
        at = (of_head + first + c) * M + slots
        of_chunk = tl.load(added + at, inside, other=EMPTY)
        tl.store(before + at, mass, inside)
        mass = join_masses(mass, of_chunk, NORMALISED)
        tl.store(after + at, mass, inside)
    tl.store(end_mass + place, mass, inside)


@triton.jit(do_not_specialize=VARYING)
def scan_segments(
    keys, values, added_masses, masses, before, after,
    given_keys, given_values, given_mass, last_keys, last_values, last_mass,
    first_segments, segment_starts, segment_ends,
    chunks, total_chunks, segments, heads, control_heads,
    D: tl.constexpr, M: tl.constexpr, S: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, NORMALISED: tl.constexpr, PACKED: tl.constexpr, GIVEN: tl.constexpr,
    LAST: tl.constexpr, BACKWARD: tl.constexpr,
):  # fmt: skip
    """The memories before each segment of sequence n, or if BACKWARD, their gradients after it.

    keys, values: (Z, H, M, D), what each segment adds, and afterwards the memories
    added_masses, masses: (Z, H, M), the same of dU. Not one tensor: each element is loaded by
        several threads, and stored by one
    given_*, last_*: (N, H, M, D) and (N, H, M), what the scan begins with, if GIVEN, and what it
        ends with, if LAST. Masses are of BACKWARD alone
    """
    n, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    d, slots = tile_of_memory(tl.program_id(1), D, BLOCK_D, BLOCK_M)
    first, end = parts_of_sequence(n, segments, first_segments, PACKED)
    control_head = tl.minimum(head, control_heads - 1)
    before += control_head.to(tl.int64) * total_chunks * M + slots
    after += control_head.to(tl.int64) * total_chunks * M + slots
    place = (n * heads + head).to(tl.int64) * M
    has_mass = slots < tl.where(tl.program_id(1) % ((D + BLOCK_D - 1) // BLOCK_D) == 0, M, 0)
    key = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    value = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    mass = tl.zeros((BLOCK_M,), tl.float32)
    if GIVEN:
        key = load_memory(given_keys + place * D, slots, d, D, M)
        value = load_memory(given_values + place * D, slots, d, D, M)
        if BACKWARD:
            mass = tl.load(given_mass + place + slots, slots < M, other=0.0)
    for j in range(0, end - first):
        z = end - 1 - j if BACKWARD else first + j
        if PACKED:
            start = tl.load(segment_starts + z)
            stop = tl.load(segment_ends + z)
        else:
            start = n * chunks + (z % segments) * S
            stop = n * chunks + tl.minimum((z % segments) * S + S, chunks)
        old = tl.load(before + start.to(tl.int64) * M, slots < M, other=EMPTY)
        new = tl.load(after + (stop - 1).to(tl.int64) * M, slots < M, other=EMPTY)
        at = (z * heads + head).to(tl.int64) * M
        added_key = load_memory(keys + at * D, slots, d, D, M)
        added_value = load_memory(values + at * D, slots, d, D, M)
        tl.debug_barrier()  # between what is loaded and what is stored there
        store_memory(keys + at * D, slots, d, D, M, key)
        store_memory(values + at * D, slots, d, D, M, value)
        decay = decay_of(old, new, NORMALISED)
        key = key * decay[:, None] + added_key
        value = value * decay[:, None] + added_value
        if BACKWARD and NORMALISED:
            tl.store(masses + at + slots, mass, has_mass)
            mass = mass * decay + tl.load(added_masses + at + slots, slots < M, other=0.0)
    if LAST:
        store_memory(last_keys + place * D, slots, d, D, M, key)
        store_memory(last_values + place * D, slots, d, D, M, value)
        if BACKWARD:
            tl.store(last_mass + place + slots, mass, has_mass)
