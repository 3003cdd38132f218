"""The six kernels of the causal form. The equations are those of `chunked.py`."""

import triton
import triton.language as tl

EMPTY = tl.constexpr(-1e30)
WRITTEN = tl.constexpr(-0.5e30)
RISE = tl.constexpr(60.0)  # of a normaliser within a chunk, at most, where it has one reference
STEP = tl.constexpr(40.0)  # from one reference to the next one elsewhere

# Arguments that change with B, T and H, for which no kernel is compiled again: see `triton.jit`.
VARYING = ("length", "chunks", "total", "sequences", "heads", "control_heads", "first_head")


# --- Places


@triton.jit
def _end(cu_seqlens, n, length):
    """Where sequence n begins. Nobody has read it; a kernel must not leave its tensors."""
    return tl.minimum(tl.maximum(tl.load(cu_seqlens + n).to(tl.int32), 0), length)


@triton.jit
def _sequence(n, cu_seqlens, length, chunks, PACKED: tl.constexpr, C: tl.constexpr):
    """The row of the batch of sequence n, its first position and its end, its first chunk."""
    if PACKED:
        start = _end(cu_seqlens, n, length)
        end = _end(cu_seqlens, n + 1, length)
        return (n * 0).to(tl.int64), start, end, start // C + n
    else:
        return n.to(tl.int64), n * 0, n * 0 + length, n * chunks


@triton.jit
def _chunk(g, cu_seqlens, length, chunks, sequences, PACKED: tl.constexpr, C: tl.constexpr):
    """The row of chunk g, its first position, how many positions are left there, its sequence.

    Sequence n begins with chunk cu_seqlens[n] // C + n, so that no table of chunks is needed.
    """
    if PACKED:
        n = g * 0
        above = n + sequences
        while above - n > 1:
            middle = (n + above) // 2
            is_below = _end(cu_seqlens, middle, length) // C + middle <= g
            n = tl.where(is_below, middle, n)
            above = tl.where(is_below, above, middle)
    else:
        n = g // chunks
    row, start, end, first = _sequence(n, cu_seqlens, length, chunks, PACKED, C)
    start += (g - first) * C
    return row, start, end - start, n


@triton.jit
def _at(x, stride_b, stride_h, stride_t, row, head, t):
    """Where position t of a row and head begins; offsets within a chunk are 32 bits wide."""
    return x + row * stride_b + head.to(tl.int64) * stride_h + t.to(tl.int64) * stride_t


@triton.jit
def _parts(floats, total, sequences, heads, DP: tl.constexpr, BM: tl.constexpr):
    """The float32 numbers that the forward pass keeps.

    masses (H, G, 4, BM): of a chunk alone, the first write logit, before the chunk, after it
    means (H, G, 4, DP): of the keys and values of a chunk, and those that the chunk is read less of
    centres (H, N, 2, DP): of the keys and values of a sequence
    """
    means = floats + heads.to(tl.int64) * total * (4 * BM)
    return floats, means, means + heads.to(tl.int64) * total * (4 * DP)


@triton.jit
def _mass(n, head, control_heads, M: tl.constexpr):
    """Where that of sequence n and a head begins, in (N, h, M)."""
    return (n * control_heads + tl.minimum(head, control_heads - 1)).to(tl.int64) * M


# --- Loads


@triton.jit
def _tokens(x, x_t, i, d, left, D: tl.constexpr):
    """(C, TILE), zeros after the end."""
    inside = (i[:, None] < left) & (d[None, :] < D)
    return tl.load(x + i[:, None] * x_t + d[None, :], inside, other=0.0)


@triton.jit
def _across(x, x_t, i, d, left, D: tl.constexpr):
    """(TILE, C): products take no transposed registers as their first operand (see `launch`)."""
    inside = (i[None, :] < left) & (d[:, None] < D)
    return tl.load(x + i[None, :] * x_t + d[:, None], inside, other=0.0)


@triton.jit
def _relative(
    x, x_t, i, d, left, means, D: tl.constexpr, NORMALISED: tl.constexpr, WIDE: tl.constexpr
):
    """(C, TILE), less the mean if NORMALISED."""
    token = _tokens(x, x_t, i, d, left, D)
    if NORMALISED:
        token = tl.where(i[:, None] < left, token - tl.load(means + d)[None, :], 0.0)
    return token.to(WIDE)


@triton.jit
def _logits(x, x_t, i, m, left, M: tl.constexpr, NORMALISED: tl.constexpr):
    """Write logits (C, BM), `EMPTY` where nothing is written; or control vectors, 0 there."""
    inside = (i[:, None] < left) & (m[None, :] < M)
    s = tl.load(x + i[:, None] * x_t + m[None, :], inside, other=0.0).to(tl.float32)
    if NORMALISED:
        s = tl.maximum(s, EMPTY, propagate_nan=tl.PropagateNan.ALL)
        s = tl.where(inside, s, EMPTY)
    return s


@triton.jit
def _store(x, x_t, i, d, left, D: tl.constexpr, values):
    inside = (i[:, None] < left) & (d[None, :] < D)
    tl.store(x + i[:, None] * x_t + d[None, :], values.to(x.dtype.element_ty), inside)


# --- Write weights


@triton.jit
def _dot(a, b, WIDE: tl.constexpr, IP: tl.constexpr):
    return tl.dot(a.to(WIDE), b.to(WIDE), input_precision=IP)


@triton.jit
def logaddexp(a, b):
    """NaN where one of them is, which `tl.maximum` alone would drop."""
    return tl.maximum(a, b) + tl.log(1 + tl.exp(-tl.abs(a - b)))


@triton.jit
def _share(s, reference):
    """exp(s - reference), 0 where nothing is written; a logit that is NaN stays one."""
    return tl.where(s <= WRITTEN, 0.0, tl.exp(s - reference))


@triton.jit
def _fraction(s, after, NORMALISED: tl.constexpr):
    """F (C, BM)."""
    return _share(s, after[None, :]) if NORMALISED else s


@triton.jit
def _gains(
    s, f, before, after, C: tl.constexpr, NORMALISED: tl.constexpr, WIDE: tl.constexpr,
    IP: tl.constexpr,
):  # fmt: skip
    """Z (C, BM), 0 before a slot's first token, and D (BM,). Z is that of the rounded F."""
    i = tl.arange(0, C)
    lower = i[:, None] >= i[None, :]
    if NORMALISED:
        decay = _share(before, after)
        share = _dot(lower, f, WIDE, IP) + decay[None, :]
        return tl.where(share == 0, 0.0, 1 / share), decay
    else:
        wrote = _dot(lower, s != 0, WIDE, IP)
        gain = ((wrote > 0) | (before[None, :] > WRITTEN)).to(tl.float32)
        return gain, before * 0 + 1


@triton.jit
def _references(masses, C: tl.constexpr, BM: tl.constexpr, NORMALISED: tl.constexpr):
    """How many references the weights of a chunk need: 1 unless a normaliser rises steeply."""
    if NORMALISED:
        before = tl.load(masses + 2 * BM)
        lowest = tl.where(before > WRITTEN, before, tl.load(masses + BM))
        rise = tl.load(masses + 3 * BM) - lowest
        rise = tl.max(tl.where(lowest > WRITTEN, rise, 0.0), axis=0)
        return tl.where(rise > RISE, tl.minimum(rise / STEP + 1, C).to(tl.int32), 1)
    else:
        return 1


# A steep chunk, in which Z or F cannot be held in floating point. Each slot has several references
# r, each for the positions whose normaliser is from r to r + STEP: there, F_j = exp(s_j - r) and
# Z_t = exp(r - z_t). The sum over the references has every pair of positions once, as the
# normalisers never fall. What is left out is below exp(-STEP) of a sum. All functions take the
# write logits of the chunk s (C, BM), and of some of its positions t (R,) the highest of the write
# logits so far, `peaks` (R, BM), which is within log(C + 1) below the normaliser.


@triton.jit
def _higher(a, b):
    return tl.maximum(a, b)


@triton.jit
def _peaks(s, own, before, i, t0):
    """own: those rows of s that begin at t0"""
    earlier = tl.max(tl.where(i[:, None] < t0, s, EMPTY), axis=0)
    return tl.maximum(tl.associative_scan(own, 0, _higher), tl.maximum(before, earlier)[None, :])


@triton.jit
def _by_reference(s, peaks, bound, before, i, t, WIDE: tl.constexpr, IP: tl.constexpr):
    """F, Z (0 at other positions), Z D, and the bound below the next reference (BM,)."""
    later = (peaks > WRITTEN) & (peaks >= bound[None, :])
    reference = tl.min(tl.where(later, peaks, -EMPTY), axis=0)
    bound = reference + STEP
    f = _share(tl.minimum(s, bound[None, :]), reference[None, :])
    kept = _share(tl.minimum(before, bound), reference)
    share = _dot(t[:, None] >= i[None, :], f, WIDE, IP) + kept[None, :]
    gain = tl.where(later & (peaks < bound[None, :]), 1 / share, 0.0)
    return f, gain, gain * kept[None, :], bound


@triton.jit
def _steep_kept(s, peaks, before, i, t, count, WIDE: tl.constexpr, IP: tl.constexpr):
    """Z D (R, BM)."""
    bound = before * 0 + WRITTEN
    out = tl.zeros_like(peaks)
    for _ in tl.range(0, count, num_stages=1):
        _, _, kept, bound = _by_reference(s, peaks, bound, before, i, t, WIDE, IP)
        out += kept
    return out


@triton.jit
def _steep_spread(pairs, s, peaks, before, i, t, count, WIDE: tl.constexpr, IP: tl.constexpr):
    """sum_j pairs_tj Z_t F_j: (R, BM)."""
    bound = before * 0 + WRITTEN
    out = tl.zeros_like(peaks)
    for _ in tl.range(0, count, num_stages=1):
        f, gain, _, bound = _by_reference(s, peaks, bound, before, i, t, WIDE, IP)
        out += _dot(pairs, f, WIDE, IP) * gain
    return out


@triton.jit
def _steep_weights(p, s, peaks, before, i, t, count, WIDE: tl.constexpr, IP: tl.constexpr):
    """(p_t Z_t) . F_j: (R, C)."""
    bound = before * 0 + WRITTEN
    out = tl.zeros((t.shape[0], i.shape[0]), tl.float32)
    for _ in tl.range(0, count, num_stages=1):
        f, gain, _, bound = _by_reference(s, peaks, bound, before, i, t, WIDE, IP)
        out += _dot(p * gain, tl.trans(f.to(WIDE)), WIDE, IP)
    return out


@triton.jit
def _steep_gather(pairs, p, s, peaks, before, i, count, WIDE: tl.constexpr, IP: tl.constexpr):
    """F_j sum_t pairs_jt p_t Z_t (C, BM), and F_j . (p_t Z_t) (C, C)."""
    bound = before * 0 + WRITTEN
    out = tl.zeros_like(s)
    weights = tl.zeros((i.shape[0], i.shape[0]), tl.float32)
    for _ in tl.range(0, count, num_stages=1):
        f, gain, _, bound = _by_reference(s, peaks, bound, before, i, i, WIDE, IP)
        spread = (p * gain).to(WIDE)
        out += _dot(pairs, spread, WIDE, IP) * f
        weights += _dot(f, tl.trans(spread), WIDE, IP)
    return out, weights


# --- Forward


@triton.jit(do_not_specialize=VARYING)
def states(
    k, v, log_alpha, memories, floats,
    k_b, k_h, k_t, v_b, v_h, v_t, a_b, a_h, a_t,
    cu_seqlens, length, chunks, total, sequences, heads,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, TILE: tl.constexpr, DP: tl.constexpr,
    BM: tl.constexpr, NORMALISED: tl.constexpr, PACKED: tl.constexpr, WIDE: tl.constexpr,
    IP: tl.constexpr,
):  # fmt: skip
    """What chunk g writes into an empty memory: memories (H, G, 2, DP, BM), less `means`."""
    g, head = tl.program_id(0), tl.program_id(1)
    row, t0, left, _ = _chunk(g, cu_seqlens, length, chunks, sequences, PACKED, C)
    if left <= 0:
        return
    masses, means, _ = _parts(floats, total, sequences, heads, DP, BM)
    place = head.to(tl.int64) * total + g
    i, m = tl.arange(0, C), tl.arange(0, BM)
    s = _logits(_at(log_alpha, a_b, a_h, a_t, row, head, t0), a_t, i, m, left, M, NORMALISED)
    if NORMALISED:
        peak = tl.max(s, axis=0)
        weight = _share(s, peak[None, :])
        mass = tl.sum(weight, axis=0)
        weight /= tl.where(mass == 0, 1.0, mass)[None, :]
        is_first = i[:, None] == tl.min(tl.where(s > WRITTEN, i[:, None], C), axis=0)[None, :]
        first = tl.max(tl.where(is_first, s, EMPTY), axis=0)
        mass = tl.where(mass == 0, EMPTY, peak + tl.log(mass))
        tl.store(masses + place * 4 * BM + BM + m, first)
        written = tl.max(s, axis=1) > WRITTEN
        count = tl.maximum(tl.sum(written.to(tl.float32), axis=0), 1.0)
    else:
        weight = s
        mass = tl.where(tl.max((s != 0).to(tl.float32), axis=0) > 0, 0.0, EMPTY)
    tl.store(masses + place * 4 * BM + m, mass)
    means += place * 4 * DP
    memories += place * 2 * DP * BM
    weight = weight.to(WIDE)
    for d0 in tl.range(0, DP, TILE, num_stages=1):
        d = d0 + tl.arange(0, TILE)
        for is_value in tl.static_range(2):
            if is_value:
                y, y_t = _at(v, v_b, v_h, v_t, row, head, t0), v_t
            else:
                y, y_t = _at(k, k_b, k_h, k_t, row, head, t0), k_t
            x = _across(y, y_t, i, d, left, D).to(tl.float32)
            if NORMALISED:
                mean = tl.sum(tl.where(written[None, :], x, 0.0), axis=1) / count
                tl.store(means + is_value * DP + d, mean)
                x = tl.where(i[None, :] < left, x - mean[:, None], 0.0)
            new = _dot(x, weight, WIDE, IP)
            at = memories + is_value * DP * BM + d[:, None] * BM + m[None, :]
            tl.store(at, new.to(memories.dtype.element_ty))


@triton.jit(do_not_specialize=VARYING)
def scan(
    memories, floats, start_keys, start_values, start_mass, end_keys, end_values, end_mass,
    cu_seqlens, length, chunks, total, sequences, heads, control_heads,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr,
    BD: tl.constexpr, NORMALISED: tl.constexpr, PACKED: tl.constexpr, GIVEN: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """The memories before each chunk of sequence n, less the means of the chunk, in their place.

    start_*, end_*: (N, H, M, D) and (N, h, M), before the first chunk, if GIVEN, and after the last
    """
    n, head, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    _, start, end, first = _sequence(n, cu_seqlens, length, chunks, PACKED, C)
    masses, means, centres = _parts(floats, total, sequences, heads, DP, BM)
    m, rows = tl.arange(0, BM), tile * BD + tl.arange(0, BD)
    d = rows % DP
    inside = (d[:, None] < D) & (m[None, :] < M)
    state = (n * heads + head).to(tl.int64) * M * D + m[None, :] * D + d[:, None]
    of_mass = _mass(n, head, control_heads, M) + m
    place = head.to(tl.int64) * total + first
    masses += place * 4 * BM + m
    means += place * 4 * DP + rows
    memories += place * 2 * DP * BM + rows[:, None] * BM + m[None, :]
    is_one = m < tl.where(tile == 0, BM, 0)
    memory = tl.zeros((BD, BM), tl.float32)
    mass = tl.zeros((BM,), tl.float32) + EMPTY
    mean = tl.zeros((BD,), tl.float32)
    centre = tl.zeros((BD,), tl.float32)
    if GIVEN:
        mass = tl.load(start_mass + of_mass, m < M, other=EMPTY)
        if tile * BD < DP:
            memory = tl.load(start_keys + state, inside, other=0.0)
        else:
            memory = tl.load(start_values + state, inside, other=0.0)
        if NORMALISED:
            held = (mass > WRITTEN).to(tl.float32)
            mean = tl.sum(memory * held[None, :], axis=1) / tl.maximum(tl.sum(held, axis=0), 1.0)
    count = (end - start + C - 1) // C
    for j in tl.range(0, count, num_stages=STAGES):
        c = (j + count * 0).to(tl.int64)
        new = tl.load(memories + c * 2 * DP * BM).to(tl.float32)
        of_new = tl.load(masses + c * 4 * BM)
        tl.store(masses + c * 4 * BM + 2 * BM, mass, is_one)
        if NORMALISED:
            own = tl.load(means + c * 4 * DP)
            # A chunk that writes nothing reads the memory less the mean of an earlier one.
            mean = tl.where(own == 0, mean, own)
            tl.store(means + c * 4 * DP + 2 * DP, mean)
            centre += mean
            stored = tl.where(mass[None, :] > WRITTEN, memory - mean[:, None], 0.0)
            after = logaddexp(mass, of_new)
            share = _share(of_new, after)
            kept = tl.exp(mass - after)
            tl.store(memories + c * 2 * DP * BM, stored.to(memories.dtype.element_ty))
            memory = memory * kept[None, :] + (new + own[:, None]) * share[None, :]
        else:
            after = tl.maximum(mass, of_new)
            tl.store(memories + c * 2 * DP * BM, memory.to(memories.dtype.element_ty))
            memory += new
        mass = after
        tl.store(masses + c * 4 * BM + 3 * BM, mass, is_one)
    if NORMALISED:
        centres += (head.to(tl.int64) * sequences + n) * 2 * DP + rows
        tl.store(centres, centre / tl.maximum(count, 1))
    tl.store(end_mass + of_mass, mass, is_one & (m < M))
    if tile * BD < DP:
        tl.store(end_keys + state, memory, inside)
    else:
        tl.store(end_values + state, memory, inside)


@triton.jit(do_not_specialize=VARYING)
def attend(
    q, k, v, log_alpha, memories, floats, out, log_sum,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, a_b, a_h, a_t,
    cu_seqlens, length, chunks, total, sequences, heads, scale,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, TILE: tl.constexpr, DP: tl.constexpr,
    BM: tl.constexpr, NORMALISED: tl.constexpr, PACKED: tl.constexpr, SUM: tl.constexpr,
    WIDE: tl.constexpr, IP: tl.constexpr,
):  # fmt: skip
    """The output of chunk g: out (B, T, H, D); if SUM, and NORMALISED, log_sum (B, T, H) too."""
    g, head = tl.program_id(0), tl.program_id(1)
    row, t0, left, _ = _chunk(g, cu_seqlens, length, chunks, sequences, PACKED, C)
    if left <= 0:
        return
    masses, means, _ = _parts(floats, total, sequences, heads, DP, BM)
    place = head.to(tl.int64) * total + g
    q = _at(q, q_b, q_h, q_t, row, head, t0)
    k = _at(k, k_b, k_h, k_t, row, head, t0)
    v = _at(v, v_b, v_h, v_t, row, head, t0)
    log_alpha = _at(log_alpha, a_b, a_h, a_t, row, head, t0)
    rows = (row * length + t0) * heads + head
    out += rows * D
    log_sum += rows
    masses += place * 4 * BM + tl.arange(0, BM)
    means += place * 4 * DP + 2 * DP
    memories += place * 2 * DP * BM
    count = _references(masses, C, BM, NORMALISED)
    if count > 1:  # in small pieces, whose registers are no more than those of other chunks
        for r0 in tl.range(0, C, 16, num_stages=1):
            _attend(
                q, k, v, log_alpha, memories, means, masses, out, log_sum,
                q_t, k_t, v_t, a_t, heads, left, r0, count, scale,
                D, M, C, 16, TILE, DP, BM, NORMALISED, True, SUM, WIDE, IP,
            )  # fmt: skip
    else:
        _attend(
            q, k, v, log_alpha, memories, means, masses, out, log_sum,
            q_t, k_t, v_t, a_t, heads, left, 0, count, scale,
            D, M, C, C, TILE, DP, BM, NORMALISED, False, SUM, WIDE, IP,
        )  # fmt: skip


@triton.jit
def _attend(
    q, k, v, log_alpha, memories, means, masses, out, log_sum,
    q_t, k_t, v_t, a_t, heads, left, r0, count, scale,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, R: tl.constexpr, TILE: tl.constexpr,
    DP: tl.constexpr, BM: tl.constexpr, NORMALISED: tl.constexpr, STEEP: tl.constexpr,
    SUM: tl.constexpr, WIDE: tl.constexpr, IP: tl.constexpr,
):  # fmt: skip
    """Of the R queries from r0."""
    i, t, m = tl.arange(0, C), r0 + tl.arange(0, R), tl.arange(0, BM)
    before, after = tl.load(masses + 2 * BM), tl.load(masses + 3 * BM)
    pairs, read = _products(
        q, q_t, k, k_t, memories, means, i, t, m, left, D, C, R, TILE, DP, BM, NORMALISED, WIDE, IP
    )
    s = _logits(log_alpha, a_t, i, m, left, M, NORMALISED)
    if STEEP:
        peaks = _peaks(s, _logits(log_alpha, a_t, t, m, left, M, True), before, i, r0)
        kept = _steep_kept(s, peaks, before, i, t, count, WIDE, IP)
        logits = _steep_spread(pairs, s, peaks, before, i, t, count, WIDE, IP)
        logits = (read * kept + logits + 0 * after[None, :]) * scale
        p, log_total = _softmax(logits, peaks > WRITTEN)
        total = tl.sum(p, axis=1)
        weights = _steep_weights(p, s, peaks, before, i, t, count, WIDE, IP)
        p = (p * kept).to(WIDE)
    else:
        f = _fraction(s, after, NORMALISED).to(WIDE)
        gain, decay = _gains(s, f, before, after, C, NORMALISED, WIDE, IP)
        logits = tl.dot(pairs, f, read * decay[None, :], input_precision=IP) * gain
        p, log_total = _softmax(logits * scale, gain != 0)
        total = tl.sum(p, axis=1)
        p *= gain
        weights = _dot(p, tl.trans(f), WIDE, IP)
        p = (p * decay[None, :]).to(WIDE)
    weights = tl.where(t[:, None] >= i[None, :], weights, 0.0).to(WIDE)
    for d0 in tl.range(0, DP, TILE, num_stages=1):
        d = d0 + tl.arange(0, TILE)
        memory = tl.load(memories + DP * BM + d[:, None] * BM + m[None, :])
        o = _dot(p, tl.trans(memory.to(WIDE)), WIDE, IP)
        o += _dot(weights, _relative(v, v_t, i, d, left, means + DP, D, NORMALISED, WIDE), WIDE, IP)
        if NORMALISED:
            o += total[:, None] * tl.load(means + DP + d)[None, :]
        if SUM:
            query = _tokens(q, q_t, t, d, left, D).to(tl.float32)
            log_total += scale * tl.sum(query * tl.load(means + d)[None, :], axis=1)
        _store(out, heads * D, t, d, left, D, o)
    if SUM:
        tl.store(log_sum + t * heads, log_total, t < left)


@triton.jit
def _products(
    x, x_t, y, y_t, memories, means, i, t, m, left,
    D: tl.constexpr, C: tl.constexpr, R: tl.constexpr, TILE: tl.constexpr, DP: tl.constexpr,
    BM: tl.constexpr, NORMALISED: tl.constexpr, WIDE: tl.constexpr, IP: tl.constexpr,
):  # fmt: skip
    """x_t . y_j for j <= t (R, C), and x_t . memory (R, BM)."""
    pairs = tl.zeros((R, C), tl.float32)
    read = tl.zeros((R, BM), tl.float32)
    for d0 in tl.range(0, DP, TILE, num_stages=1):
        d = d0 + tl.arange(0, TILE)
        query = _tokens(x, x_t, t, d, left, D).to(WIDE)
        token = _relative(y, y_t, i, d, left, means, D, NORMALISED, WIDE)
        pairs += _dot(query, tl.trans(token), WIDE, IP)
        read += _dot(query, tl.load(memories + d[:, None] * BM + m[None, :]), WIDE, IP)
    return tl.where(t[:, None] >= i[None, :], pairs, 0.0).to(WIDE), read


@triton.jit
def _softmax(logits, written):
    """Over the slots into which something is written, zeros where there is none; log of its sum."""
    logits = tl.where(written, logits, EMPTY)
    peak = tl.max(logits, axis=1)
    p = tl.where(written, tl.exp(logits - peak[:, None]), 0.0)
    total = tl.sum(p, axis=1)
    total = tl.where(total == 0, 1.0, total)
    return p / total[:, None], peak + tl.log(total)


# --- Backward. A vector that is added to all keys, or to all values, changes no gradient of q, k, v
# and log_alpha, as the weights of the tokens in a slot sum to 1. Without the means these are no
# small differences of large numbers, which bfloat16 rounds.


@triton.jit
def _shifted(x, means, centres, d):
    """(mean of the chunk - mean of the sequence) . x of x (TILE, BM): (BM,)."""
    shift = tl.load(means + d) - tl.load(centres + d)
    return tl.sum(x.to(tl.float32) * shift[:, None], axis=0)


@triton.jit(do_not_specialize=VARYING)
def queries_back(
    q, k, v, log_alpha, memories, floats, grad_out, grad_log_sum,
    grad_q, grad_k, grad_v, grad_log_alpha, weights_p, grads, grad_memories, grad_masses,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, a_b, a_h, a_t, o_b, o_h, o_t,
    cu_seqlens, length, chunks, total, sequences, heads, first_head, scale,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, TILE: tl.constexpr, DP: tl.constexpr,
    BM: tl.constexpr, NORMALISED: tl.constexpr, PACKED: tl.constexpr, SUM: tl.constexpr,
    STEEP: tl.constexpr, WIDE: tl.constexpr, IP: tl.constexpr,
):  # fmt: skip
    """dq of chunk g, and what its queries add to the other gradients; if STEEP, of steep chunks.

    grad_log_sum: (B, T, H), if SUM
    grad_q: (B, T, H, D); grad_log_alpha: (B, T, H, M), here - F_j sum_{t >= j} y_t Z_t
    weights_p, grads: (group, G, C, BM), p Z and scale da Z; a group of heads from first_head
    grad_memories: (group, G, 2, DP, BM), what the chunk adds to dH and dG before it
    grad_masses: (group, G, 2, BM), and to dU; `scan_back` writes dU after the chunk beside it, as
        each number is loaded by several threads, and stored by one
    grad_k, grad_v: (B, T, H, D); only of steep chunks, of which dk, dv and ds have here what
        the queries of the chunk itself read
    """
    g, local = tl.program_id(0), tl.program_id(1)
    head = local + first_head
    row, t0, left, n = _chunk(g, cu_seqlens, length, chunks, sequences, PACKED, C)
    if left <= 0:
        return
    masses, means, centres = _parts(floats, total, sequences, heads, DP, BM)
    place = head.to(tl.int64) * total + g
    i, m = tl.arange(0, C), tl.arange(0, BM)
    masses += place * 4 * BM + m
    count = _references(masses, C, BM, NORMALISED)
    if (count > 1) != STEEP:
        return
    q = _at(q, q_b, q_h, q_t, row, head, t0)
    k = _at(k, k_b, k_h, k_t, row, head, t0)
    log_alpha = _at(log_alpha, a_b, a_h, a_t, row, head, t0)
    before, after = tl.load(masses + 2 * BM), tl.load(masses + 3 * BM)
    means += place * 4 * DP + 2 * DP
    memories += place * 2 * DP * BM
    s = _logits(log_alpha, a_t, i, m, left, M, NORMALISED)
    pairs, read = _products(
        q, q_t, k, k_t, memories, means, i, i, m, left, D, C, C, TILE, DP, BM, NORMALISED, WIDE, IP
    )
    if STEEP:
        peaks = _peaks(s, s, before, i, 0)
        kept = _steep_kept(s, peaks, before, i, i, count, WIDE, IP)
        logits = _steep_spread(pairs, s, peaks, before, i, i, count, WIDE, IP)
        logits = read * kept + logits + 0 * after[None, :]
        written = peaks > WRITTEN
    else:
        f = _fraction(s, after, NORMALISED).to(WIDE)
        gain, decay = _gains(s, f, before, after, C, NORMALISED, WIDE, IP)
        logits = tl.dot(pairs, f, read * decay[None, :], input_precision=IP) * gain
        written = gain != 0
    p, log_total = _softmax(logits * scale, written)
    p = tl.where(i[:, None] < left, p, 0.0)
    v = _at(v, v_b, v_h, v_t, row, head, t0)
    grad_out = _at(grad_out, o_b, o_h, o_t, row, head, t0)
    pairs, read = _products(
        grad_out, o_t, v, v_t, memories + DP * BM, means + DP, i, i, m, left,
        D, C, C, TILE, DP, BM, NORMALISED, WIDE, IP,
    )  # fmt: skip
    if STEEP:
        y = read * kept + _steep_spread(pairs, s, peaks, before, i, i, count, WIDE, IP)
    else:
        y = tl.dot(pairs, f, read * decay[None, :], input_precision=IP) * gain
    y *= p  # p dp
    rows = (row * length + t0) * heads + head
    scratch = local.to(tl.int64) * total + g
    grad_log_alpha += rows * M
    da = y - p * tl.sum(y, axis=1)[:, None]
    if SUM:
        of_sum = tl.load(grad_log_sum + rows + i * heads, i < left, other=0.0)
        da += p * of_sum[:, None]
        of_sum *= scale * tl.sum(p, axis=1)
    if NORMALISED:
        # The read logits are those of p, which are kept in fewer registers.
        y += da * (tl.log(tl.maximum(p, 1e-37)) + log_total[:, None])
        minus = tl.where(i[:, None] <= i[None, :], -1.0, 0.0)
        if STEEP:
            of_mass = tl.sum(y * kept, axis=0)
            later, _ = _steep_gather(minus, y, s, peaks, before, i, count, WIDE, IP)
        else:
            y *= gain
            of_mass = tl.sum(y, axis=0) * decay
            later = _dot(minus, y, WIDE, IP) * f.to(tl.float32)
    da *= scale
    if STEEP:
        weights = _steep_weights(da, s, peaks, before, i, i, count, WIDE, IP)
        later += _of_tokens(
            k, k_t, q, q_t, grad_k + rows * D, heads * D, means, da, s, peaks, before, i, left,
            count, D, C, TILE, DP, WIDE, IP,
        )  # fmt: skip
        later += _of_tokens(
            v, v_t, grad_out, o_t, grad_v + rows * D, heads * D, means + DP, p, s, peaks, before,
            i, left, count, D, C, TILE, DP, WIDE, IP,
        )  # fmt: skip
        p = (p * kept).to(WIDE)
        da = (da * kept).to(WIDE)
    else:
        tile = scratch * C * BM + i[:, None] * BM + m[None, :]
        p *= gain
        tl.store(weights_p + tile, p.to(weights_p.dtype.element_ty))
        p = (p * decay[None, :]).to(WIDE)
        da *= gain
        tl.store(grads + tile, da.to(grads.dtype.element_ty))
        weights = _dot(da, tl.trans(f), WIDE, IP)
        da = (da * decay[None, :]).to(WIDE)
    if NORMALISED:
        _store(grad_log_alpha, heads * M, i, m, left, M, later)
    weights = tl.where(i[:, None] >= i[None, :], weights, 0.0).to(WIDE)
    grad_q += rows * D
    grad_memories += scratch * 2 * DP * BM
    centres += (head.to(tl.int64) * sequences + n) * 2 * DP
    for d0 in tl.range(0, DP, TILE, num_stages=1):
        d = d0 + tl.arange(0, TILE)
        memory = tl.load(memories + d[:, None] * BM + m[None, :])
        out = _dot(da, tl.trans(memory.to(WIDE)), WIDE, IP)
        out += _dot(weights, _relative(k, k_t, i, d, left, means, D, NORMALISED, WIDE), WIDE, IP)
        if SUM:
            out += of_sum[:, None] * tl.load(means + d)[None, :]
        _store(grad_q, heads * D, i, d, left, D, out)
        at = grad_memories + d[:, None] * BM + m[None, :]
        added = _dot(_across(q, q_t, i, d, left, D), da, WIDE, IP)
        tl.store(at, added.to(grad_memories.dtype.element_ty))
        if NORMALISED:
            of_mass += _shifted(added, means, centres, d)
        added = _dot(_across(grad_out, o_t, i, d, left, D), p, WIDE, IP)
        tl.store(at + DP * BM, added.to(grad_memories.dtype.element_ty))
        if NORMALISED:
            of_mass += _shifted(added, means + DP, centres + DP, d)
    if NORMALISED:
        tl.store(grad_masses + scratch * 2 * BM + m, of_mass)


@triton.jit
def _of_tokens(
    y, y_t, x, x_t, grad_y, grad_t, means, p, s, peaks, before, i, left, count,
    D: tl.constexpr, C: tl.constexpr, TILE: tl.constexpr, DP: tl.constexpr,
    WIDE: tl.constexpr, IP: tl.constexpr,
):  # fmt: skip
    """What the queries of a steep chunk add to dk or dv, which is stored, and to ds (C, BM)."""
    later = i[:, None] <= i[None, :]
    pairs = tl.zeros((C, C), tl.float32)
    for d0 in tl.range(0, DP, TILE, num_stages=1):
        d = d0 + tl.arange(0, TILE)
        token = _relative(y, y_t, i, d, left, means, D, True, WIDE)
        pairs += _dot(token, tl.trans(_tokens(x, x_t, i, d, left, D).to(WIDE)), WIDE, IP)
    pairs = tl.where(later, pairs, 0.0)
    added, weights = _steep_gather(pairs, p, s, peaks, before, i, count, WIDE, IP)
    weights = tl.where(later, weights, 0.0)
    for d0 in tl.range(0, DP, TILE, num_stages=1):
        d = d0 + tl.arange(0, TILE)
        out = _dot(weights, _tokens(x, x_t, i, d, left, D), WIDE, IP)
        _store(grad_y, grad_t, i, d, left, D, out)
    return added


@triton.jit(do_not_specialize=VARYING)
def scan_back(
    grad_memories, grad_masses, floats, end_keys, end_values, grad_end_keys, grad_end_values,
    grad_end_mass, grad_start_keys, grad_start_values, grad_start_mass,
    cu_seqlens, length, chunks, total, sequences, heads, control_heads, first_head,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr,
    BD: tl.constexpr, NORMALISED: tl.constexpr, PACKED: tl.constexpr, GIVEN: tl.constexpr,
    LAST: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """dH, dG and dU after each chunk of sequence n, in the place of what each chunk adds.

    end_*: (N, H, M, D), the memory after the sequence; grad_end_*: its gradients, if GIVEN
    grad_start_*: (N, H, M, D) and dU (N, H, M) before the sequence, if LAST
    """
    n, local, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    head = local + first_head
    _, start, end, first = _sequence(n, cu_seqlens, length, chunks, PACKED, C)
    masses, _, centres = _parts(floats, total, sequences, heads, DP, BM)
    centres += (head.to(tl.int64) * sequences + n) * 2 * DP
    m, rows = tl.arange(0, BM), tile * BD + tl.arange(0, BD)
    d = rows % DP
    state = (n * heads + head).to(tl.int64) * M * D + m[None, :] * D
    inside = (d[:, None] < D) & (m[None, :] < M)
    place = head.to(tl.int64) * total + first
    masses += place * 4 * BM + m
    place = local.to(tl.int64) * total + first
    grad_masses += place * 2 * BM + m
    grad_memories += place * 2 * DP * BM + rows[:, None] * BM + m[None, :]
    is_one = m < tl.where(tile == 0, BM, 0)
    memory = tl.zeros((BD, BM), tl.float32)
    mass = tl.zeros((BM,), tl.float32)
    if GIVEN:
        if tile * BD < DP:
            memory = tl.load(grad_end_keys + state + d[:, None], inside, other=0.0)
        else:
            memory = tl.load(grad_end_values + state + d[:, None], inside, other=0.0)
        if NORMALISED and tile == 0:
            of_end = grad_end_mass + _mass(n, head, control_heads, M) + m
            # Heads that share a normaliser have a part of its gradient each.
            mass = -tl.load(of_end, m < M, other=0.0) * control_heads / heads
            for d0 in tl.range(0, DP, BD, num_stages=1):
                mass += _along(end_keys, grad_end_keys, state, centres, d0, m, D, M, BD)
                mass += _along(end_values, grad_end_values, state, centres + DP, d0, m, D, M, BD)
    count = (end - start + C - 1) // C
    for j in tl.range(0, count, num_stages=STAGES):
        c = (count - 1 - j).to(tl.int64)
        new = tl.load(grad_memories + c * 2 * DP * BM).to(tl.float32)
        tl.store(grad_memories + c * 2 * DP * BM, memory.to(grad_memories.dtype.element_ty))
        if NORMALISED:
            of_mass = tl.load(grad_masses + c * 2 * BM, is_one, other=0.0)
            around = masses + c * 4 * BM
            kept = tl.exp(tl.load(around + 2 * BM) - tl.load(around + 3 * BM))
            tl.store(grad_masses + c * 2 * BM + BM, mass, is_one)
            memory = memory * kept[None, :] + new
            mass = mass * kept + of_mass
        else:
            memory += new
    if LAST:
        if tile * BD < DP:
            tl.store(grad_start_keys + state + d[:, None], memory, inside)
        else:
            tl.store(grad_start_values + state + d[:, None], memory, inside)
        if NORMALISED:
            tl.store(grad_start_mass + (n * heads + head) * M + m, mass, is_one & (m < M))


@triton.jit
def _along(x, grad, state, centres, d0, m, D: tl.constexpr, M: tl.constexpr, BD: tl.constexpr):
    """The product (BM,) of a memory, less its centre, with its gradient, over some dimensions."""
    d = d0 + tl.arange(0, BD)
    inside = (d[:, None] < D) & (m[None, :] < M)
    memory = tl.load(x + state + d[:, None], inside, other=0.0) - tl.load(centres + d)[:, None]
    return tl.sum(memory * tl.load(grad + state + d[:, None], inside, other=0.0), axis=0)


@triton.jit(do_not_specialize=VARYING)
def tokens_back(
    q, k, v, log_alpha, floats, grad_out, weights_p, grads, grad_memories, grad_masses,
    grad_k, grad_v, grad_log_alpha,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, a_b, a_h, a_t, o_b, o_h, o_t,
    cu_seqlens, length, chunks, total, sequences, heads, first_head,
    D: tl.constexpr, M: tl.constexpr, C: tl.constexpr, TILE: tl.constexpr, DP: tl.constexpr,
    BM: tl.constexpr, NORMALISED: tl.constexpr, PACKED: tl.constexpr, WIDE: tl.constexpr,
    IP: tl.constexpr,
):  # fmt: skip
    """dk, dv (B, T, H, D) and ds (B, T, H, M) of chunk g. Rows are tokens, and columns queries."""
    g, local = tl.program_id(0), tl.program_id(1)
    head = local + first_head
    row, t0, left, n = _chunk(g, cu_seqlens, length, chunks, sequences, PACKED, C)
    if left <= 0:
        return
    masses, means, centres = _parts(floats, total, sequences, heads, DP, BM)
    place = head.to(tl.int64) * total + g
    i, m = tl.arange(0, C), tl.arange(0, BM)
    log_alpha = _at(log_alpha, a_b, a_h, a_t, row, head, t0)
    rows = (row * length + t0) * heads + head
    grad_log_alpha += rows * M
    masses += place * 4 * BM + m
    is_steep = _references(masses, C, BM, NORMALISED) > 1
    there = tl.where(is_steep, left, 0)  # dk and dv have a part already
    scratch = local.to(tl.int64) * total + g
    tile = scratch * C * BM + i[:, None] * BM + m[None, :]
    is_new = (i[:, None] < tl.where(is_steep, 0, C)) & (m[None, :] >= 0)
    later = i[:, None] <= i[None, :]
    s = _logits(log_alpha, a_t, i, m, left, M, NORMALISED)
    f = _fraction(s, tl.load(masses + 3 * BM), NORMALISED).to(WIDE)
    grad_s = tl.zeros((C, BM), tl.float32)
    for of_keys in tl.static_range(2):
        if of_keys:
            x, x_t = _at(q, q_b, q_h, q_t, row, head, t0), q_t
            y, y_t = _at(k, k_b, k_h, k_t, row, head, t0), k_t
            grad_y = grad_k + rows * D
            spread = tl.load(grads + tile, is_new, other=0.0).to(WIDE)
        else:
            x, x_t = _at(grad_out, o_b, o_h, o_t, row, head, t0), o_t
            y, y_t = _at(v, v_b, v_h, v_t, row, head, t0), v_t
            grad_y = grad_v + rows * D
            spread = tl.load(weights_p + tile, is_new, other=0.0).to(WIDE)
        memories = grad_memories + (scratch * 2 + 1 - of_keys) * DP * BM
        mean = means + (place * 4 + 3 - of_keys) * DP
        centre = centres + ((head.to(tl.int64) * sequences + n) * 2 + 1 - of_keys) * DP
        pairs = tl.zeros((C, C), tl.float32)
        for d0 in tl.range(0, DP, TILE, num_stages=1):
            d = d0 + tl.arange(0, TILE)
            token = _relative(y, y_t, i, d, left, mean, D, NORMALISED, WIDE)
            other = _tokens(x, x_t, i, d, left, D).to(WIDE)
            pairs += _dot(token, tl.trans(other), WIDE, IP)
            memory = tl.load(memories + d[:, None] * BM + m[None, :])
            grad_s += _dot(token, memory, WIDE, IP)
            if NORMALISED:
                grad_s += _shifted(memory, mean, centre, d)[None, :]
        grad_s += _dot(tl.where(later, pairs, 0.0), spread, WIDE, IP)
        weights = _dot(f, tl.trans(spread), WIDE, IP)
        weights = tl.where(later, weights, 0.0).to(WIDE)
        for d0 in tl.range(0, DP, TILE, num_stages=1):
            d = d0 + tl.arange(0, TILE)
            memory = tl.load(memories + d[:, None] * BM + m[None, :]).to(WIDE)
            out = _dot(f, tl.trans(memory), WIDE, IP)
            out += _dot(weights, _tokens(x, x_t, i, d, left, D), WIDE, IP)
            if NORMALISED:
                out += _tokens(grad_y, heads * D, i, d, there, D).to(tl.float32)
                if is_steep:
                    tl.debug_barrier()  # between what is loaded and what is stored there
            _store(grad_y, heads * D, i, d, left, D, out)
    if NORMALISED:
        grad_s -= tl.load(grad_masses + scratch * 2 * BM + BM + m)[None, :]
        grad_s *= f.to(tl.float32)
        grad_s += _tokens(grad_log_alpha, heads * M, i, m, left, M).to(tl.float32)
        tl.debug_barrier()
    _store(grad_log_alpha, heads * M, i, m, left, M, grad_s)
