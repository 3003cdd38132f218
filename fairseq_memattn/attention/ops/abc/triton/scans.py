"""The kernels that go through the chunks of a sequence one after another.

What each chunk adds is there before they begin, so that a step is a multiplication and a sum.
"""

import triton
import triton.language as tl

from fairseq_memattn.attention.ops.abc.triton.shared import (
    EMPTY,
    VARYING,
    decay_of,
    join_masses,
    load_memory,
    store_memory,
    tile_of_memory,
)

STAGES = tl.constexpr(4)  # a normaliser is loaded three steps before its own


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
