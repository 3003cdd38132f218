"""What the kernels share: chunks, the weights of a chunk in both forms, and products."""

import triton
import triton.language as tl

EMPTY = tl.constexpr(-1e30)
WRITTEN = tl.constexpr(-0.5e30)
SMALLEST_SHARE = tl.constexpr(8.756510762696520e-27)  # exp(-60)

# Arguments that change with B, T and H, for which no kernel is compiled again: see `triton.jit`.
VARYING = (
    *("length", "chunks", "total_chunks", "segments"),
    *("heads", "control_heads", "group"),
)


@triton.jit
def place_of_chunk(
    g, length, chunks, chunk_starts, chunk_ends, PACKED: tl.constexpr, C: tl.constexpr
):
    """The row of the batch of chunk g, its first position, and the end of its sequence."""
    if PACKED:
        row = g * 0
        start = tl.load(chunk_starts + g)
        end = tl.load(chunk_ends + g)
    else:
        row = g // chunks
        start = (g % chunks) * C
        end = start * 0 + length
    return row.to(tl.int64), start, end


@triton.jit
def rows_from(pointer, stride_b, stride_h, stride_t, row, head, t):
    """Where position t of a row and head begins; offsets within a chunk are 32 bits wide."""
    return pointer + row * stride_b + head.to(tl.int64) * stride_h + t.to(tl.int64) * stride_t


@triton.jit
def load_tokens(rows, stride, t, end, columns, width):
    """Columns (X,) of the positions t (C,) of a chunk: (C, X), zeros after the end."""
    inside = (t[:, None] < end) & (columns[None, :] < width)
    return tl.load(rows + t[:, None] * stride + columns[None, :], inside, other=0.0)


@triton.jit
def store_tokens(rows, stride, t, end, columns, width, values):
    inside = (t[:, None] < end) & (columns[None, :] < width)
    pointers = rows + t[:, None] * stride + columns[None, :]
    tl.store(pointers, values.to(rows.dtype.element_ty), inside)


@triton.jit
def load_log_alpha(rows, stride, t, end, slots, M, NORMALISED: tl.constexpr):
    """Write logits (C, M), `EMPTY` where nothing is written; or control vectors, 0 there."""
    inside = (t[:, None] < end) & (slots[None, :] < M)
    pointers = rows + t[:, None] * stride + slots[None, :]
    log_alpha = tl.load(pointers, inside, other=0.0).to(tl.float32)
    if NORMALISED:
        log_alpha = tl.maximum(log_alpha, EMPTY, propagate_nan=tl.PropagateNan.ALL)
        log_alpha = tl.where(inside, log_alpha, EMPTY)
    return log_alpha


@triton.jit
def fractions(log_alpha, before, after, NORMALISED: tl.constexpr):
    """F (C, M) and D (M,)."""
    decay = decay_of(before, after, NORMALISED)
    if NORMALISED:
        fraction = tl.where(log_alpha > WRITTEN, tl.exp(log_alpha - after[None, :]), 0.0)
        return fraction, decay
    else:
        return log_alpha, decay


@triton.jit
def gains(log_alpha, fraction, decay, before, NORMALISED: tl.constexpr):
    """Z (C, M), 0 before a slot's first token, and whether Z and F are safe to use."""
    if NORMALISED:
        old = tl.where(before > WRITTEN, decay, 0.0)
        share = tl.cumsum(fraction, axis=0) + old[None, :]
        least = tl.min(tl.where(log_alpha > WRITTEN, share, 1.0))
        least = tl.minimum(least, tl.min(tl.where(before > WRITTEN, decay, 1.0)))
        gain = tl.where(share > 0, 1 / tl.where(share > 0, share, 1.0), 0.0)
    else:
        wrote = tl.cumsum((log_alpha != 0).to(tl.float32), axis=0)
        gain = ((wrote > 0) | (before[None, :] > WRITTEN)).to(tl.float32)
        least = 1.0
    return gain, least >= SMALLEST_SHARE


@triton.jit
def normalisers(log_alpha, before, C: tl.constexpr):
    """z (C, M), the log of the prefix normaliser, one position after another."""
    t = tl.arange(0, C)
    mass = before
    masses = tl.zeros_like(log_alpha)
    for j in range(C):
        mass = logaddexp(mass, _row(log_alpha, t, j))
        masses = tl.where(t[:, None] == j, mass[None, :], masses)
    return masses


@triton.jit
def logaddexp(a, b):
    """NaN where one of them is, which `tl.maximum` alone would drop."""
    return tl.maximum(a, b) + tl.log(1 + tl.exp(-tl.abs(a - b)))


@triton.jit
def _row(x, t, j):
    return tl.sum(tl.where(t[:, None] == j, x, 0.0), axis=0)


@triton.jit
def _column(x, t, j):
    return tl.sum(tl.where(t[None, :] == j, x, 0.0), axis=1)


@triton.jit
def _shares_of(log_alpha, mass, t, j):
    """exp(s_j - z_t) (C, M) of one j and every t >= j; 0 where token j writes nothing."""
    logit = _row(log_alpha, t, j)[None, :]
    share = tl.where(logit > WRITTEN, tl.exp(tl.minimum(logit - mass, 0.0)), 0.0)
    return tl.where(t[:, None] >= j, share, 0.0)


@triton.jit
def dot(a, b, WIDE: tl.constexpr, PRECISION: tl.constexpr):
    return tl.dot(a.to(WIDE), b.to(WIDE), input_precision=PRECISION)


@triton.jit
def spread(
    scores, log_alpha, fraction, gain,
    FACTORED: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """sum_j scores_tj Z_t F_j: (C, M). scores: (C, C), 0 for j > t."""
    if FACTORED:
        out = dot(scores, fraction, WIDE, PRECISION) * gain
    else:
        t = tl.arange(0, C)
        out = tl.zeros_like(gain)
        for j in range(C):
            out += _column(scores, t, j)[:, None] * _shares_of(log_alpha, gain, t, j)
    return out


@triton.jit
def pair_weights(
    p, log_alpha, fraction, gain,
    FACTORED: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(p_t Z_t) . F_j for j <= t: (C, C). p: (C, M)."""
    t = tl.arange(0, C)
    if FACTORED:
        out = dot(p * gain, tl.trans(fraction), WIDE, PRECISION)
    else:
        out = tl.zeros((C, C), tl.float32)
        for j in range(C):
            weight = tl.sum(p * _shares_of(log_alpha, gain, t, j), axis=1)
            out = tl.where(t[None, :] == j, weight[:, None], out)
    return tl.where(t[:, None] >= t[None, :], out, 0.0)


@triton.jit
def gather(
    scores, p, log_alpha, fraction, gain, NORMALISED: tl.constexpr,
    FACTORED: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """ds_j from the queries of the chunk: sum_t scores_tj p_t Z_t, times F_j if NORMALISED.

    scores: (C, C), 0 for j > t; p: (C, M). Returns (C, M).
    """
    if FACTORED:
        out = dot(tl.trans(scores), p * gain, WIDE, PRECISION)
        if NORMALISED:
            out *= fraction
    else:
        t = tl.arange(0, C)
        out = tl.zeros_like(gain)
        for j in range(C):
            weighted = _column(scores, t, j)[:, None] * p * _shares_of(log_alpha, gain, t, j)
            out = tl.where(t[:, None] == j, tl.sum(weighted, axis=0)[None, :], out)
    return out


@triton.jit
def sums_to_the_end(y, log_alpha, fraction, gain, FACTORED: tl.constexpr, C: tl.constexpr):
    """F_j sum_{t >= j} y_t Z_t: (C, M)."""
    if FACTORED:
        out = tl.cumsum(y * gain, axis=0, reverse=True) * fraction
    else:
        t = tl.arange(0, C)
        out = tl.zeros_like(gain)
        for j in range(C):
            total = tl.sum(y * _shares_of(log_alpha, gain, t, j), axis=0)
            out = tl.where(t[:, None] == j, total[None, :], out)
    return out


@triton.jit
def place_of_segment(
    z, length, chunks, segments, chunk_starts, chunk_ends, segment_starts, segment_ends,
    PACKED: tl.constexpr, C: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """The row of the batch of segment z, its first position, the end of its sequence, its chunks.

    The chunks are the first one, and the one after the last.
    """
    if PACKED:
        row = z * 0
        first = tl.load(segment_starts + z)
        last = tl.load(segment_ends + z)
        start = tl.load(chunk_starts + first, first < last, other=0)
        end = tl.load(chunk_ends + first, first < last, other=0)
    else:
        row = z // segments
        c = (z % segments) * S
        first = row * chunks + c
        last = row * chunks + tl.minimum(c + S, chunks)
        start = c * C
        end = start * 0 + length
    return row.to(tl.int64), start, end, first, last


@triton.jit
def tile_of_memory(tile, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr):
    """The columns and the slots of a tile of a memory (M, D)."""
    tiles: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D
    d = tile % tiles * BLOCK_D + tl.arange(0, BLOCK_D)
    return d, tile // tiles * BLOCK_M + tl.arange(0, BLOCK_M)


@triton.jit
def mass_of(log_alpha, NORMALISED: tl.constexpr):
    """The normaliser (M,) of some tokens; 0, and `EMPTY` where nothing is written, without one."""
    if NORMALISED:
        peak = tl.max(log_alpha, axis=0)
        mass = peak + tl.log(tl.sum(tl.exp(log_alpha - peak[None, :]), axis=0))
    else:
        mass = tl.where(tl.max((log_alpha != 0).to(tl.float32), axis=0) > 0, 0.0, EMPTY)
    return mass


@triton.jit
def join_masses(a, b, NORMALISED: tl.constexpr):
    """The normaliser of two sets of tokens."""
    if NORMALISED:
        return logaddexp(a, b)
    else:
        return tl.where((a > WRITTEN) | (b > WRITTEN), 0.0, EMPTY)


@triton.jit
def decay_of(before, after, NORMALISED: tl.constexpr):
    """D (M,), the share of a memory that a chunk leaves."""
    if NORMALISED:
        return tl.exp(before - after)
    else:
        return before * 0 + 1.0


@triton.jit
def write_weights(
    rows, stride, before, after, t, end, slots,
    M: tl.constexpr, C: tl.constexpr,
    NORMALISED: tl.constexpr, FACTORED: tl.constexpr,
):  # fmt: skip
    """Some slots of a chunk: log_alpha, F, Z if FACTORED or else z, and kept, all (C, slots)."""
    log_alpha = load_log_alpha(rows, stride, t, end, slots, M, NORMALISED)
    old = tl.load(before + slots, slots < M, other=EMPTY)
    new = tl.load(after + slots, slots < M, other=EMPTY)
    fraction, decay = fractions(log_alpha, old, new, NORMALISED)
    if FACTORED:
        gain, _ = gains(log_alpha, fraction, decay, old, NORMALISED)
    else:
        gain = normalisers(log_alpha, old, C)
    return log_alpha, fraction, gain, _kept(gain, old, decay, FACTORED)


@triton.jit
def _kept(gain, before, decay, FACTORED: tl.constexpr):
    """The share of the memory before the chunk in that at t: (C, M)."""
    if FACTORED:
        return gain * decay[None, :]
    else:
        return tl.exp(before[None, :] - gain)


@triton.jit
def is_written(gain, FACTORED: tl.constexpr):
    """Which slots hold anything at t: (C, M)."""
    if FACTORED:
        return gain > 0
    else:
        return gain > WRITTEN


@triton.jit
def load_memory(memory, slots, d, D: tl.constexpr, M: tl.constexpr):
    """Some slots of a memory (M, D)."""
    inside = (slots[:, None] < M) & (d[None, :] < D)
    return tl.load(memory + slots[:, None] * D + d[None, :], inside, other=0.0)


@triton.jit
def store_memory(memory, slots, d, D: tl.constexpr, M: tl.constexpr, values):
    inside = (slots[:, None] < M) & (d[None, :] < D)
    pointers = memory + slots[:, None] * D + d[None, :]
    tl.store(pointers, values.to(memory.dtype.element_ty), inside)


@triton.jit
def causal_products(
    x, stride_x, y, stride_y, t, end, D: tl.constexpr, TILE: tl.constexpr,
    TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x_t . y_j of the tokens at x and y for j <= t, else 0: (C, C), in tiles of D."""
    products = tl.zeros((t.shape[0], t.shape[0]), tl.float32)
    for d0 in tl.range(0, D, TILE, num_stages=1):
        d = d0 + tl.arange(0, TILE)
        left = load_tokens(x, stride_x, t, end, d, D).to(TOKENS)
        right = tl.trans(load_tokens(y, stride_y, t, end, d, D).to(TOKENS))
        products = tl.dot(left, right, products, input_precision=PRECISION)
    return tl.where(t[:, None] >= t[None, :], products, 0.0)


@triton.jit
def memory_products(
    x, stride, t, end, memory, slots, D: tl.constexpr, M: tl.constexpr, TILE: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x_t . memory_m of the tokens at x and some slots of a memory (M, D): (C, slots)."""
    products = tl.zeros((t.shape[0], slots.shape[0]), tl.float32)
    for d0 in tl.range(0, D, TILE, num_stages=1):
        d = d0 + tl.arange(0, TILE)
        left = load_tokens(x, stride, t, end, d, D).to(WIDE)
        right = tl.trans(load_memory(memory, slots, d, D, M).to(WIDE))
        products = tl.dot(left, right, products, input_precision=PRECISION)
    return products
