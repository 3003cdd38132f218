"""Kernel attention, also called linear: full, causal in chunks, and one step at a time.

Sources: Katharopoulos et al. (2020), "Transformers are RNNs", for the attention; Peng et al.
(2021), "Random Feature Attention", section 3.2, for the gate g. With features phi of queries and
keys, which `kernels` makes:

    S_t = g_t S_{t-1} + (1 - g_t) phi(k_t) (x) v_t,   z_t = g_t z_{t-1} + (1 - g_t) phi(k_t)
    out_t = S_t^T phi(q_t) / phi(q_t) . z_t

Without a gate S and z are plain sums, over the prefix or, where attention is not causal, over all
keys.

The causal form cuts positions into L chunks of C. S and z are carried from chunk to chunk, and
within a chunk position t sees token j <= t with weight (phi(q_t) . phi(k_j)) G_tj, where
G_tj = g_{j+1} ... g_t. Its logarithm is summed up over just these positions: a difference of two
running sums would lose what follows a gate near 0. For its derivative it keeps
O(T (F + D + C) + T/C F D) numbers a head.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm

from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.abc.chunked import CHUNK_SIZE
from fairseq_memattn.attention.ops.blocks import chunked
from fairseq_memattn.attention.ops.common import accumulation_dtype, full_precision
from fairseq_memattn.attention.ops.heads import by_key_head, by_query_head, chunk_rows, join_rows

# A normaliser up to this is 0 but for what rounding left: nothing is read.
NOTHING = 1e-30


class KernelState(NamedTuple):
    """What kernel attention keeps of some prefix, of a size that does not depend on its length.

    Batch first, in float32 (float64 for float64 inputs).

    values      (B, H, F, D): S, the sum of phi(k) (x) v
    normaliser  (B, H, F): z, the sum of phi(k)
    """

    values: Tensor
    normaliser: Tensor

    def reorder(self, new_order: Tensor) -> "KernelState":
        """The rows new_order (B',) of the batch, which survive a beam step."""
        return type(self)(*(tensor.index_select(0, new_order) for tensor in self))

    @classmethod
    def empty(cls, phi_k: Tensor, v: Tensor) -> "KernelState":
        """The state before the first token, shaped after phi_k (B, H, S, F) and v (B, H, S, D)."""
        dtype = accumulation_dtype(phi_k)
        batch, heads, _, features = phi_k.shape
        return cls(
            v.new_zeros(batch, heads, features, v.shape[-1], dtype=dtype),
            phi_k.new_zeros(batch, heads, features, dtype=dtype),
        )


@full_precision
def kernel_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    key_padding_mask: Tensor | None = None,
    log_gate: Tensor | None = None,
    chunk_size: int | None = None,
    floor: float = 0.0,
) -> Tensor:
    """Kernel attention over whole sequences, in time and memory linear in their length.

    phi_q: (B, H, T, F), phi_k: (B, G, S, F), features of the queries and keys; v: (B, G, S, D),
        where G divides H, as in `abc_attention`
    causal: position t reads only positions <= t; needs T == S
    key_padding_mask: (B, S), True at padding, on either side; padding writes nothing, and a gate
        there forgets nothing
    log_gate: (B, G, S), or (B, 1, S) where the heads share one gate; log g, at most 0; -inf
        forgets all that came before. Causal attention only
    chunk_size: of the causal form, a matter of speed and memory alone
    floor: the normaliser is taken to be at least floor |phi_q| |z|, that is, the cosine between
        phi_q and z at least floor. For features that can be negative, whose normaliser can be
        anything; a feature map says what it needs. With 0 (for features that are not negative)
        the output is the weighted mean of the values, exactly

    Returns (B, H, T, D) in phi_q's dtype. A query whose normaliser is not above 1e-30 (nothing was
    written, or nothing that it matches) gets zeros. Sums are kept in float32 (float64 for float64
    inputs).

    Raises ValueError for shapes that do not fit together.
    """
    _check_shapes(phi_q, phi_k, v, key_padding_mask)
    check.options(causal, chunk_size)
    _check_floor(floor)
    if not causal:
        if log_gate is not None:
            raise ValueError("`log_gate` needs causal attention: there is no order to forget in.")
        return kernel_read(phi_q, kernel_write(phi_k, v, key_padding_mask), floor=floor)
    _check_causal(phi_q, phi_k, log_gate)
    tokens = _tokens(phi_q, phi_k, v, key_padding_mask, log_gate)
    out, _ = _in_chunks(tokens, KernelState.empty(phi_k, v), chunk_size or CHUNK_SIZE, floor)
    return out.to(phi_q.dtype)


@full_precision
def kernel_step(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    state: KernelState | None,
    *,
    key_padding_mask: Tensor | None = None,
    log_gate: Tensor | None = None,
    floor: float = 0.0,
) -> tuple[Tensor, KernelState]:
    """Continues causal kernel attention by T >= 1 positions.

    Arguments as in `kernel_attention`, with S == T. state: None at the start. Returns the output
    (B, H, T, D) and the state after the last position; the given state is not changed.
    Differentiable, through the state too.

    Raises ValueError for shapes, or a state, that do not fit.
    """
    _check_shapes(phi_q, phi_k, v, key_padding_mask)
    _check_floor(floor)
    _check_causal(phi_q, phi_k, log_gate)
    if state is None:
        state = KernelState.empty(phi_k, v)
    _check_state(state, phi_k, v.shape[3])
    tokens = _tokens(phi_q, phi_k, v, key_padding_mask, log_gate)
    if phi_q.shape[2] == 1:
        state = _write_one(tokens, state)
        return kernel_read(phi_q, state, floor=floor), state
    out, state = _in_chunks(tokens, state, CHUNK_SIZE, floor)
    return out.to(phi_q.dtype), state


@full_precision
def kernel_write(phi_k: Tensor, v: Tensor, key_padding_mask: Tensor | None = None) -> KernelState:
    """Writes a whole sequence, without a gate. Cross attention does this once per sentence.

    Shapes and errors as in `kernel_attention`.
    """
    _check_shapes(None, phi_k, v, key_padding_mask)
    tokens = _tokens(phi_k, phi_k, v, key_padding_mask, None)
    return KernelState(tokens.k.transpose(2, 3) @ tokens.v, tokens.k.sum(dim=2))


@full_precision
def kernel_read(phi_q: Tensor, state: KernelState, *, floor: float = 0.0) -> Tensor:
    """Reads what was written, with every query the same.

    phi_q: (B, H, T, F). floor and errors as in `kernel_attention`. Returns (B, H, T, D) in
    phi_q's dtype.
    """
    check.tensors(phi_q=phi_q)
    check.axes("phi_q", phi_q, "B", "H", "length", "size")
    _check_floor(floor)
    check.instance("state", state, KernelState)
    heads = state.values.shape[1]
    check.query_heads("state.values", heads, phi_q)
    _check_state(state, phi_q[:, :heads], state.values.shape[-1])
    q = by_key_head(phi_q.to(state.values.dtype), heads)
    z = state.normaliser.unsqueeze(-1)
    out = _mean(q @ state.values, q @ z, q, z.transpose(2, 3) if floor else None, floor)
    return by_query_head(out, phi_q.shape[1]).to(phi_q.dtype)


class _Tokens(NamedTuple):
    """The inputs in the accumulation dtype, with nothing left to write at padding.

    q: (B, H, T, F); k: (B, G, S, F), phi(k) times 1 - g; v: (B, G, S, D)
    log_gate: (b, h, S, 1), where b = h = 1 if there is no gate
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_gate: Tensor


def _tokens(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    key_padding_mask: Tensor | None,
    log_gate: Tensor | None,
) -> _Tokens:
    dtype = accumulation_dtype(phi_q)
    q, k, v = (x.to(dtype) for x in (phi_q, phi_k, v))
    padding = None if key_padding_mask is None else key_padding_mask[:, None, :, None]
    if padding is not None:
        k = k.masked_fill(padding, 0.0)
    if log_gate is None:
        return _Tokens(q, k, v, k.new_zeros(1, 1, k.shape[2], 1))
    log_gate = log_gate.to(dtype).unsqueeze(-1)
    if padding is not None:
        log_gate = log_gate.masked_fill(padding, 0.0)
    return _Tokens(q, k * -log_gate.expm1(), v, log_gate)


def _write_one(tokens: _Tokens, state: KernelState) -> KernelState:
    gate, written = tokens.log_gate.exp(), tokens.k.transpose(2, 3)
    return KernelState(
        torch.addcmul(written * tokens.v, state.values, gate),
        torch.addcmul(tokens.k.squeeze(2), state.normaliser, gate.squeeze(2)),
    )


def _in_chunks(
    tokens: _Tokens, state: KernelState, chunk: int, floor: float
) -> tuple[Tensor, KernelState]:
    """The causal form from a given state. Returns out in the accumulation dtype."""
    length = tokens.v.shape[2]
    chunk = min(chunk, length)
    k, v, log_gate = (chunked(x, chunk) for x in tokens[1:])
    q = chunk_rows(tokens.q, k.shape[1], chunk)
    # S and z as one: z is what S would hold of a value that is 1 everywhere.
    v = torch.cat([v, v.new_ones(*v.shape[:-1], 1)], dim=-1)
    start = torch.cat([state.values, state.normaliser.unsqueeze(-1)], dim=-1)

    gates = _gates_between(log_gate)
    since_start = log_gate.cumsum(dim=3).exp()
    left = k * gates[..., -1, :].unsqueeze(-1)
    before, end = _scan(left.transpose(3, 4) @ v, since_start[:, :, :, -1:], start)

    def for_rows(x: Tensor) -> Tensor:
        """What is of each position, for the rows of its queries."""
        repeats = q.shape[3] // chunk
        return x if repeats == 1 else x.repeat(1, 1, 1, repeats, 1)

    weights = (q @ k.transpose(3, 4)) * for_rows(gates)
    sums = torch.addcmul(weights @ v, for_rows(since_start), q @ before)
    z = None
    if floor:
        z = for_rows(torch.addcmul(gates @ k, since_start, before[..., -1].unsqueeze(3)))
    out = _mean(sums[..., :-1], sums[..., -1:], q, z, floor)
    return join_rows(out, tokens.q), KernelState(
        end[..., :-1].contiguous(), end[..., -1].contiguous()
    )


def _gates_between(log_gate: Tensor) -> Tensor:
    """G_tj = g_{j+1} ... g_t for j <= t, else 0. log_gate: (b, h, L, C, 1); (b, h, L, C, C)."""
    chunk = log_gate.shape[3]
    later = log_gate.expand(-1, -1, -1, -1, chunk).tril(-1)
    return later.cumsum(dim=3).exp().tril()


def _scan(updates: Tensor, decay: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """S <- decay S + U over the chunks.

    updates: (B, H, L, F, D); decay: (b, h, L, 1, 1); start: (B, H, F, D).
    Returns S before every chunk (B, H, L, F, D) and the last S.
    """
    state, before = start, []
    for update, kept in zip(updates.unbind(2), decay.unbind(2), strict=True):
        before.append(state)
        state = torch.addcmul(update, state, kept)
    return torch.stack(before, dim=2), state


def _mean(total: Tensor, mass: Tensor, q: Tensor, z: Tensor | None, floor: float) -> Tensor:
    """total / mass (..., 1), with the floor under mass, and zeros where it is not above 0.

    q, z: (..., F), of which z is only needed with a floor.
    """
    if z is not None:
        # The squares of a small z would underflow, and the norm of 0 has no second derivative.
        largest = z.detach().abs().amax(dim=-1, keepdim=True)
        empty = largest < torch.finfo(z.dtype).tiny
        scaled = z.masked_fill(empty, 1.0) / largest.masked_fill(empty, 1.0)
        norm = largest * vector_norm(scaled, dim=-1, keepdim=True)
        lowest = vector_norm(q, dim=-1, keepdim=True) * norm
        mass = torch.maximum(mass, floor * lowest)
    nothing = mass <= NOTHING
    return (total / mass.masked_fill(nothing, 1.0)).masked_fill(nothing, 0.0)


def _check_shapes(
    phi_q: Tensor | None, phi_k: Tensor, v: Tensor, key_padding_mask: Tensor | None
) -> None:
    """phi_q: None where nothing is read yet."""
    given = {"phi_k": phi_k, "v": v} if phi_q is None else {"phi_q": phi_q, "phi_k": phi_k, "v": v}
    check.tensors(**given)
    if phi_q is not None:
        check.same_dtype(phi_q=phi_q, phi_k=phi_k)
    for name, tensor in given.items():
        check.axes(name, tensor, "B", "H", "length", "size")
    phi_q = phi_k if phi_q is None else phi_q
    batch, _, _, features = phi_q.shape
    heads, source = phi_k.shape[1:3]
    check.shape("phi_k", phi_k, (batch, heads, source, features))
    check.query_heads("phi_k", heads, phi_q)
    check.shape("v", v, (batch, heads, source, "D"))
    check.mask("key_padding_mask", key_padding_mask, (batch, source))
    check.devices("phi_k", phi_k.device, key_padding_mask=key_padding_mask)


def _check_causal(phi_q: Tensor, phi_k: Tensor, log_gate: Tensor | None) -> None:
    check.causal(phi_q, phi_k)
    batch, heads, source, _ = phi_k.shape
    if log_gate is None:
        return
    check.tensors(phi_k=phi_k, log_gate=log_gate)
    if log_gate.shape not in ((batch, heads, source), (batch, 1, source)):
        raise ValueError(
            f"`log_gate` must be ({batch}, {heads} or 1, {source}), "
            f"but is {tuple(log_gate.shape)} instead."
        )


def _check_floor(floor: float) -> None:
    if not 0 <= floor <= 1:
        raise ValueError(f"`floor` must be at least 0 and at most 1, but is {floor} instead.")


def _check_state(state: KernelState, phi: Tensor, width: int) -> None:
    normaliser = (*phi.shape[:2], phi.shape[3])
    dtype = accumulation_dtype(phi)
    check.state(state, KernelState, phi, dtype, (*normaliser, width), normaliser)
