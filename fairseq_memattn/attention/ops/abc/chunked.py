"""The causal form of ABC, in parallel chunks, with a backward pass of its own.

Positions are cut into L chunks of C. With s = log_alpha (M write logits a position), z_t the log
of the prefix normaliser, z_p and z_c its values before and at the end of a chunk, and kappa q
written q (times the scale of the read logits):

    D   = exp(z_p - z_c)             what is left of the old memory at the chunk's end
    F_j = exp(s_j - z_c)             what token j holds of the memory at the chunk's end
    Z_t = exp(z_c - z_t)             so that position t sees token j <= t with weight Z_t F_j
    H   = K~, G = V~                 the normalised memories before the chunk
    a_t = Z_t (q_t . D H + sum_{j<=t} (q_t . k_j) F_j)                           read logits
    p_t = softmax(a_t)
    o_t = (p_t Z_t) D G + sum_{j<=t} ((p_t Z_t) . F_j) v_j
    H  <- D H + sum_j F_j (x) k_j,   G <- D G + sum_j F_j (x) v_j

which is two passes of chunked linear attention around a softmax over the slots: matrix products,
one exponential a write logit, and nothing of size T x M x D.

Where R query heads read one key head, their queries are further rows t of its chunks, R C in all.

Control vectors that are not normalised (`additive.py`) are the same with F_j = phi_j, D = 1, and
Z_t = 1 in the slots that something was written into.

The product Z_t F_j equals exp(s_j - z_t) <= 1, but its factors are only safe while z rises by a
bounded amount within a chunk. Where it rises by more (`MAX_RISE`), chunks are shorter, and where it
still does, `_stable_chunk` computes exp(s_j - z_t) pair by pair.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fairseq_memattn.attention.ops.blocks import chunked
from fairseq_memattn.attention.ops.common import EMPTY, MemoryState, is_written, mass_where
from fairseq_memattn.attention.ops.heads import chunk_rows, copy_keys, join_rows

# exp(60) times any sensible activation stays inside float32, and what exp(-60) rounds away is
# below the precision of the sum it belongs to.
MAX_RISE = 60.0
CHUNK_SIZE = 64
STABLE_CHUNK_SIZE = 16
GROUP_ELEMENTS = 1 << 18


def causal_sums(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    state: MemoryState,
    scale: float,
    chunk_size: int | None,
    wants_sums: bool = True,
) -> tuple[Tensor, MemoryState, Tensor]:
    """ABC over T positions from a given memory.

    q: (B, H, T, D); k, v: (B, G, T, D), where G divides H
    log_alpha: (B, G or 1, T, M), `EMPTY` where nothing is written

    Returns the output in log_alpha's dtype, the memory after position T, and the log of the sum of
    exp(read logit) over the slots, (B, H, T): around `EMPTY` where nothing is written, and without
    meaning if not wanted. Reads numbers back from the device to choose between the factored and the
    pairwise form.
    """
    longest = min(chunk_size or CHUNK_SIZE, q.shape[2])
    for chunk in dict.fromkeys((longest, min(longest, STABLE_CHUNK_SIZE))):
        with torch.no_grad():
            writing = _factor(chunked(log_alpha, chunk, EMPTY), state.log_mass)
        if writing is not None:
            inputs = (q, k, v, log_alpha, *state, writing, scale, chunk)
            out, *memory, log_sum = _FactoredAttention.apply(*inputs, wants_sums)
            return out, MemoryState(*memory), log_sum
    attend = copy_keys(_stable_attention)
    return attend(q.to(log_alpha.dtype) * scale, k, v, log_alpha, state)


def additive_causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: Tensor,
    state: MemoryState,
    scale: float,
    chunk_size: int | None,
) -> tuple[Tensor, MemoryState]:
    """The same for control vectors phi (B, G or 1, T, M) that no sum divides, of any sign.

    A slot counts as written where phi is not 0; log_mass is 0 there, and `EMPTY` elsewhere.
    """
    chunk = min(chunk_size or CHUNK_SIZE, q.shape[2])
    with torch.no_grad():
        writing = _additive(chunked(phi, chunk), state.log_mass)
    inputs = (q, k, v, phi, *state, writing, scale, chunk)
    out, *memory, _ = _FactoredAttention.apply(*inputs, False)
    return out, MemoryState(*memory)


class _Writing(NamedTuple):
    """The write weights of every chunk, h = G or 1.

    fraction (F): (B, h, L, C, M); gain (Z): (B, h, L, C, M), 0 before a slot's first token
    decay (D): (B, h, L, M); log_mass: (B, h, M), z at the end
    some_empty: whether any slot is read before its first token
    normalised: whether the control vectors are shares of a sum, whose gradient then counts
    """

    fraction: Tensor
    gain: Tensor
    decay: Tensor
    log_mass: Tensor
    some_empty: bool
    normalised: bool


def _factor(log_alpha: Tensor, log_mass: Tensor) -> _Writing | None:
    """F, Z and D of log_alpha (B, h, L, C, M); None where they cannot be held in floating point."""
    peak = log_alpha.amax(dim=3, keepdim=True)
    weight = (log_alpha - peak).exp_()
    chunk_mass = weight.sum(dim=3).log_() + peak.squeeze(3)
    ends = torch.cat([log_mass.unsqueeze(2), chunk_mass], dim=2).logcumsumexp(dim=2)
    before, after = ends[:, :, :-1], ends[:, :, 1:]
    decay = (before - after).exp_()
    fraction = weight.mul_((peak - after.unsqueeze(3)).exp_())
    share = fraction.cumsum(dim=3).add_(decay.unsqueeze(3))
    all_written = is_written(torch.maximum(log_alpha[:, :, 0, 0], log_mass)).all()
    all_written, smallest = torch.stack([all_written, share[:, :, :, 0].amin()]).tolist()
    some_empty = not all_written
    if some_empty:
        written_here = is_written(log_alpha)
        fraction.mul_(written_here)
        written = written_here.to(torch.uint8).cummax(dim=3).values.bool()
        written |= is_written(before).unsqueeze(3)
        share = fraction.cumsum(dim=3).add_(decay.unsqueeze(3)).masked_fill_(~written, math.inf)
        smallest = share.amin().item()
    if not smallest >= math.exp(-MAX_RISE):
        return None
    return _Writing(fraction, share.reciprocal_(), decay, ends[:, :, -1], some_empty, True)


def _additive(phi: Tensor, log_mass: Tensor) -> _Writing:
    """F, Z and D of control vectors phi (B, h, L, C, M) that are not normalised."""
    chunks = phi.shape[2:4]
    written = (phi != 0).flatten(2, 3).to(torch.uint8).cummax(dim=2).values.bool()
    written |= is_written(log_mass).unsqueeze(2)
    after = mass_where(written[:, :, -1], log_mass.dtype)
    gain = written.unflatten(2, chunks).to(phi.dtype)
    decay = torch.ones_like(phi[:, :, :, 0])
    return _Writing(phi, gain, decay, after, not written.all().item(), False)


class _FactoredAttention(torch.autograd.Function):
    """The equations at the top of this file, and their derivatives.

    With B_tj = do_t . v_j and A_tj = q_t . k_j (j <= t), and dG, dH the gradients of the memories
    at the chunk's end:

        dp_t = Z_t (do_t . D G + sum_j B_tj F_j),   da = p (dp - <p, dp> + dl)
        dv_j = sum_t W_tj do_t + F_j dG,            W_tj  = (p_t Z_t) . F_j
        dk_j = sum_t dA_tj q_t + F_j dH,            dA_tj = (da_t Z_t) . F_j
        dq_t = sum_j dA_tj k_j + (da_t Z_t) D H
        ds_j = F_j (sum_{t>=j} (B_tj p_t Z_t + A_tj da_t Z_t - y_t Z_t)
                    + dG . v_j + dH . k_j - dU),    y = p dp + a da

    dl is the gradient of the log of the sum over the slots. y is the gradient through the
    normaliser; dG, dH and its sum dU are carried from chunk to chunk, backwards, with decay D. At
    the end of the sequence dU starts from the gradient of the final memory, and what is carried
    past the start is the gradient of the initial one.
    Of control vectors that are not normalised the gradient is ds_j without F_j, y and dU.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        log_alpha: Tensor,
        keys: Tensor,
        values: Tensor,
        log_mass: Tensor,
        writing: _Writing,
        scale: float,
        chunk: int,
        wants_sums: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        start, heads = torch.stack([keys, values]), k.shape[1]
        q_, k_, v_ = (_flat(chunk_rows(x.to(log_alpha.dtype), heads, chunk)) for x in (q, k, v))
        fraction, gain = (_flat(x.expand(-1, heads, -1, -1, -1)) for x in writing[:2])
        write = fraction.transpose(1, 2)
        decayed = k_.new_empty(2, len(k_), *keys.shape[2:])
        decayed_keys, decayed_values = decayed
        torch.bmm(write, k_, out=decayed_keys)
        torch.bmm(write, v_, out=decayed_values)
        end = _scan(decayed, writing.decay, start)

        out = torch.empty_like(q_)
        read_logits, reading = (q_.new_empty(*q_.shape[:2], gain.shape[2]) for _ in range(2))
        log_sum = q_.new_zeros(*q_.shape[:2], 1)
        for g in _groups(q_, chunk):
            square = _past(torch.bmm(q_[g], k_[g].transpose(1, 2)))
            logits = torch.bmm(square, fraction[g], out=read_logits[g])
            memory, gain_ = decayed_keys[g].transpose(1, 2), _for_rows(gain[g], q_)
            logits.baddbmm_(q_[g], memory, beta=scale, alpha=scale).mul_(gain_)
            written = gain_ > 0 if writing.some_empty else None
            _softmax(logits, written, out=reading[g])
            if wants_sums:
                seen = logits if written is None else logits.masked_fill(~written, EMPTY)
                torch.logsumexp(seen, dim=2, keepdim=True, out=log_sum[g])
            spread = reading[g] * gain_
            weights = _past(torch.bmm(spread, write[g], out=square))
            torch.bmm(weights, v_[g], out=out[g]).baddbmm_(spread, decayed_values[g])

        ctx.save_for_backward(
            q, k, v, fraction, gain, writing.decay, read_logits, reading, decayed, start, end,
        )  # fmt: skip
        ctx.scale, ctx.chunk, ctx.normalised = scale, chunk, writing.normalised
        ctx.wants_sums = wants_sums
        after = (end[0].clone(), end[1].clone(), writing.log_mass.clone())
        return _unflat(out, q, heads), *after, _unflat(log_sum, q, heads).squeeze(3)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the causal form has no second derivatives (create_graph=True) by parallel chunks; "
                'compute them in use_backend("naive").'
            )
        # A caller may call `backward` with autocast still on.
        with torch.autocast(grads[0].device.type, enabled=False):
            return _FactoredAttention._gradients(ctx, *grads)

    @staticmethod
    def _gradients(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (
            q, k, v, fraction, gain, decay, read_logits, reading, decayed, start, end,
        ) = ctx.saved_tensors  # fmt: skip
        grad_out, grad_keys, grad_values, grad_log_mass, grad_sum = grads
        grad_end = torch.stack([grad_keys, grad_values])
        chunk, heads = ctx.chunk, k.shape[1]
        q_, k_, v_, do_ = (
            _flat(chunk_rows(x.to(gain.dtype), heads, chunk)) for x in (q, k, v, grad_out)
        )
        write = fraction.transpose(1, 2)
        decayed_keys, decayed_values = decayed
        later = gain.new_ones(chunk, chunk).triu_()
        if ctx.wants_sums:
            grad_sum_ = _flat(chunk_rows(grad_sum.unsqueeze(3), heads, chunk))

        grad_q, grad_k, grad_v, grad_log_alpha = (torch.empty_like(x) for x in (q_, k_, v_, gain))
        dM, dU = torch.empty_like(decayed), gain.new_empty(gain.shape[0], gain.shape[2], 1)
        dH, dG = dM
        for g in _groups(q_, chunk):
            # One copy of an expanded gradient, where every product would make its own.
            do = do_[g].contiguous()
            # B, then dp, da and y
            square = _past(torch.bmm(do, v_[g].transpose(1, 2)))
            gain_ = _for_rows(gain[g], q_)
            grad_reading = torch.bmm(square, fraction[g])
            grad_reading.baddbmm_(do, decayed_values[g].transpose(1, 2)).mul_(gain_)
            spread = reading[g] * gain_
            back = torch.ops.aten._softmax_backward_data
            grad_spread = back(grad_reading, reading[g], -1, gain.dtype)
            if ctx.wants_sums:
                grad_spread.addcmul_(reading[g], grad_sum_[g])
            grad_spread.mul_(gain_)
            if ctx.normalised:
                # minus the sum over t >= j of y_t, each on its own: where the normaliser rises,
                # the first terms are larger than the last by a factor of up to exp(MAX_RISE)
                y = grad_reading.mul_(spread).addcmul_(read_logits[g], grad_spread)
                if y.shape[1] > chunk:
                    y = y.unflatten(1, (-1, chunk)).sum(dim=1)
                triangle = later.expand(len(y), -1, -1)
                torch.baddbmm(y, triangle, y, beta=0, alpha=-1, out=grad_log_alpha[g])
                torch.neg(grad_log_alpha[g][:, 0].unsqueeze(-1), out=dU[g])
            else:
                grad_log_alpha[g] = 0
            grad_spread.mul_(ctx.scale)  # from here on for q and k as they were given
            grad_log_alpha[g].baddbmm_(square.transpose(1, 2), spread)
            _past(torch.bmm(q_[g], k_[g].transpose(1, 2), out=square))
            grad_log_alpha[g].baddbmm_(square.transpose(1, 2), grad_spread)

            weights = _past(torch.bmm(spread, write[g], out=square))
            torch.bmm(weights.transpose(1, 2), do, out=grad_v[g])
            torch.bmm(spread.transpose(1, 2), do, out=dG[g])
            grad_scores = _past(torch.bmm(grad_spread, write[g], out=square))
            torch.bmm(grad_scores.transpose(1, 2), q_[g], out=grad_k[g])
            torch.bmm(grad_scores, k_[g], out=grad_q[g]).baddbmm_(grad_spread, decayed_keys[g])
            torch.bmm(grad_spread.transpose(1, 2), q_[g], out=dH[g])

        grad_start = _scan_back(dM, decay, grad_end)
        grad_v.baddbmm_(fraction, dG)
        grad_k.baddbmm_(fraction, dH)
        grad_log_alpha.baddbmm_(v_, dG.transpose(1, 2)).baddbmm_(k_, dH.transpose(1, 2))
        grad_start_mass = None
        if ctx.normalised:
            # Summed over the heads that share a normaliser further down, hence the share.
            share = decay.shape[1] / heads
            grad_mass = (grad_end * end).sum(dim=(0, -1)) - grad_log_mass * share
            dU_start = _scan_back(dU, decay, grad_mass.unsqueeze(-1))
            grad_log_alpha.sub_(dU.transpose(1, 2)).mul_(fraction)
            grad_mass = (grad_start * start).sum(dim=(0, -1)) - dU_start.squeeze(-1)
            grad_start_mass = _sum_heads(grad_mass, decay.shape[1])
        return (
            _unflat(grad_q, q, heads).to(q.dtype), _unflat(grad_k, k, heads).to(k.dtype),
            _unflat(grad_v, v, heads).to(v.dtype),
            _sum_heads(_unflat(grad_log_alpha, k, heads), decay.shape[1]),
            *grad_start, grad_start_mass, None, None, None, None,
        )  # fmt: skip


def _flat(x: Tensor) -> Tensor:
    """(B, G, L, R C, X) as (B G L, R C, X), the layout of batched matrix products."""
    return x.flatten(0, 2)


def _unflat(x: Tensor, like: Tensor, heads: int) -> Tensor:
    """(B G L, R C, X) as (B, H, T, X), the axes of `like`, without what `chunked` added."""
    return join_rows(x.unflatten(0, (len(like), heads, -1)), like)


def _past(square: Tensor) -> Tensor:
    """Zeros in (..., R C, C) where the key is after the query."""
    square.unflatten(1, (-1, square.shape[2])).tril_()
    return square


def _for_rows(gain: Tensor, rows: Tensor) -> Tensor:
    """(..., C, M) as (..., R C, M), for the R C rows of queries."""
    repeats = rows.shape[1] // gain.shape[1]
    return gain if repeats == 1 else gain.repeat(1, repeats, 1)


def _groups(x: Tensor, chunk: int) -> list[slice]:
    """Slices over the chunks, so large that a group's R C x C matrices stay in a CPU's cache."""
    chunks, rows = x.shape[:2]
    size = chunks if x.is_cuda else max(1, GROUP_ELEMENTS // (rows * chunk))
    return [slice(start, start + size) for start in range(0, chunks, size)]


def _softmax(logits: Tensor, written: Tensor | None, out: Tensor) -> None:
    """Softmax over the slots that something was written into; zeros where there is none."""
    if written is None:
        torch.softmax(logits, dim=-1, out=out)
    else:
        torch.softmax(logits.masked_fill(~written, EMPTY), dim=-1, out=out).mul_(written)


def _sum_heads(grad: Tensor, heads: int) -> Tensor:
    """The gradient of a tensor that all heads shared, if they did."""
    return grad if grad.shape[1] == heads else grad.sum(dim=1, keepdim=True)


def _scan(updates: Tensor, decay: Tensor, start: Tensor) -> Tensor:
    """H <- D H + U over the chunks. Overwrites every U with its D H and returns the last H.

    updates: (..., B H L, M, D); decay: (B, h, L, M); start: (..., B, H, M, D).
    """
    memory, decayed = start.clone(), torch.empty_like(start)
    for update, fraction in _by_chunk(updates, decay, start):
        torch.mul(memory, fraction, out=decayed)
        torch.add(update, decayed, out=memory)
        update.copy_(decayed)
    return memory


def _scan_back(updates: Tensor, decay: Tensor, end: Tensor) -> Tensor:
    """dH <- D (dH + U) over the chunks, backwards: `_scan`'s derivative.

    Overwrites every U with dH at its chunk's end, and returns dH before the first chunk.
    """
    grad, added = end.clone(), torch.empty_like(end)
    for update, fraction in reversed(_by_chunk(updates, decay, end)):
        torch.add(update, grad, out=added)
        update.copy_(grad)
        torch.mul(added, fraction, out=grad)
    return grad


def _by_chunk(x: Tensor, decay: Tensor, like: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The chunks of x (..., B H L, M, D), each shaped after a memory, and their decays."""
    chunks = x.view(*like.shape[:-2], -1, *x.shape[-2:]).unbind(-3)
    return list(zip(chunks, decay.unsqueeze(-1).unbind(2), strict=True))


def _stable_attention(
    q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, state: MemoryState
) -> tuple[Tensor, MemoryState, Tensor]:
    """The causal form for any write logits at all, chunk after chunk.

    Keeps one memory a chunk for the backward pass and recomputes the rest.
    """
    outputs, sums = [], []
    inputs = [x.to(log_alpha.dtype) for x in (q, k, v, log_alpha)]
    for start in range(0, q.shape[2], STABLE_CHUNK_SIZE):
        chunk = [x[:, :, start : start + STABLE_CHUNK_SIZE] for x in inputs]
        out, *memory, log_sum = checkpoint(_stable_chunk, *chunk, *state, use_reentrant=False)
        state = MemoryState(*memory)
        outputs.append(out)
        sums.append(log_sum)
    return torch.cat(outputs, dim=2), state, torch.cat(sums, dim=2)


def _stable_chunk(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    keys: Tensor,
    values: Tensor,
    log_mass: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """One chunk by the definition: a softmax over the old memory and the tokens up to each t.

    q, k, v: (B, H, C, D); log_alpha: (B, h, C, M); keys, values: (B, H, M, D); log_mass: (B, h, M).
    """
    length = log_alpha.shape[2]
    future = torch.ones(length, length, dtype=torch.bool, device=log_alpha.device).triu(1)
    by_time = log_alpha.unsqueeze(2).expand(-1, -1, length, -1, -1)
    by_time = by_time.masked_fill(future.unsqueeze(-1), EMPTY)
    old = log_mass[:, :, None, None].expand(-1, -1, length, -1, -1)
    entries = torch.cat([old, by_time], dim=3)
    masses = entries.logsumexp(dim=3)
    written = is_written(masses)
    kept, fresh = (entries.softmax(dim=3) * written.unsqueeze(3)).split([1, length], dim=3)
    kept = kept.squeeze(3)

    scores = q @ k.transpose(2, 3)
    read_logits = (q @ keys.transpose(2, 3)) * kept + (scores.unsqueeze(-1) * fresh).sum(dim=3)
    read_logits = read_logits.masked_fill(~written, EMPTY)
    reading = read_logits.softmax(dim=-1) * written
    weights = (fresh @ reading.unsqueeze(-1)).squeeze(-1)
    out = weights @ v + (reading * kept) @ values

    decay, write = kept[:, :, -1, :, None], fresh[:, :, -1].transpose(2, 3)
    after = (decay * keys + write @ k, decay * values + write @ v, masses[:, :, -1])
    return out, *after, read_logits.logsumexp(dim=-1)
