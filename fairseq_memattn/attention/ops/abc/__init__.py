"""Attention with bounded-memory control (ABC): full, causal, and one step at a time.

Source: Peng et al., "ABC: Attention with Bounded-memory Control", equations 3-5 and 12 and
appendix B.1. Keys and values are written into M slots by control vectors
phi_i = alpha_i / sum_j alpha_j, and a query reads the slots with softmax attention:

    K~ = sum_i phi_i (x) k_i,   V~ = sum_i phi_i (x) v_i,   out = V~^T softmax(scale * K~ q)

All three forms take log alpha in the place of alpha, so that no write logit overflows.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.attention.ops.abc import chunked, naive
from fairseq_memattn.attention.ops.backends import choose
from fairseq_memattn.attention.ops.checks import check_causal, check_memory_state, check_shapes
from fairseq_memattn.attention.ops.precision import full_precision, scaled
from fairseq_memattn.attention.ops.state import EMPTY, MemoryState, accumulation_dtype, is_written

# The causal form over T positions from a given memory. A kernel is one entry more here and one
# condition in `choose`.
BACKENDS = {"chunked": chunked.causal_attention, "naive": naive.causal_attention}


@full_precision
def abc_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    *,
    causal: bool,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    """ABC over whole sequences, in time and memory linear in their length.

    q: (B, H, T, D); k, v: (B, H, S, D)
    log_alpha: (B, H, S, M), or (B, 1, S, M) if the heads share one control; -inf writes nothing
    causal: position t reads only what positions <= t wrote, normalised over that prefix
        (footnote 5 and appendix B.1); needs T == S
    key_padding_mask: (B, S), True at padding, on either side; padding writes nothing
    scale: of the read logits; None is D ** -0.5
    chunk_size: of the causal form; affects speed alone; None chooses one

    Returns (B, H, T, D) in q's dtype. A query before which nothing was written gets zeros.
    Normalisers and memories are in float32 (float64 for float64 inputs).

    Raises ValueError for shapes that do not fit together.
    """
    check_shapes(q, k, v, log_alpha, key_padding_mask)
    if not causal:
        return abc_read(q, abc_write(k, v, log_alpha, key_padding_mask), scale)
    check_causal(q, k)
    log_alpha = _write_logits(log_alpha, key_padding_mask, accumulation_dtype(q))
    start = MemoryState.empty(k, v, log_alpha)
    attend = choose(BACKENDS, q)
    out, _ = attend(scaled(q, scale), k, v, log_alpha, start, chunk_size)
    return out.to(q.dtype)


@full_precision
def abc_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    state: MemoryState | None,
    *,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, MemoryState]:
    """Continues causal ABC by T >= 1 positions from a memory of constant size (equation 5).

    Shapes as in `abc_attention`, with S == T. state: None at the start. Returns the output
    (B, H, T, D) and the memory after the last position; the given state is not changed.
    Differentiable, through the state too.

    Raises ValueError for shapes, or a state, that do not fit.
    """
    check_shapes(q, k, v, log_alpha, key_padding_mask)
    check_causal(q, k)
    log_alpha = _write_logits(log_alpha, key_padding_mask, accumulation_dtype(q))
    if state is None:
        state = MemoryState.empty(k, v, log_alpha)
    check_memory_state(state, k, log_alpha)
    if q.shape[2] == 1:
        state = _write_one(k, v, log_alpha, state)
        return abc_read(q, state, scale), state
    attend = choose(BACKENDS, q)
    out, state = attend(scaled(q, scale), k, v, log_alpha, state, None)
    return out.to(q.dtype), state


@full_precision
def abc_write(
    k: Tensor, v: Tensor, log_alpha: Tensor, key_padding_mask: Tensor | None = None
) -> MemoryState:
    """Writes a whole sequence into a memory: equations 3 and 12.

    Shapes and errors as in `abc_attention`; k and v may be one tensor, which is then written once.
    Cross attention does this once per sentence.
    """
    check_shapes(k, k, v, log_alpha, key_padding_mask)
    log_alpha = _write_logits(log_alpha, key_padding_mask, accumulation_dtype(k))
    control = log_alpha.softmax(dim=2)
    # The largest share is that of the largest logit: exp(0) over what the sum then is.
    log_mass = log_alpha.amax(dim=2) - control.amax(dim=2).log()
    control = control * is_written(log_mass).unsqueeze(2)
    keys = _sums(control, k)
    return MemoryState(keys, keys if v is k else _sums(control, v), log_mass)


@full_precision
def abc_read(q: Tensor, state: MemoryState, scale: float | None = None) -> Tensor:
    """Reads a memory with softmax attention over its slots: equation 4.

    q: (B, H, T, D). Returns (B, H, T, D) in q's dtype. Empty slots get no softmax mass.
    """
    dtype = state.keys.dtype
    # Where nothing at all was written the weights are even, over values that are zero.
    unwritten = torch.where(is_written(state.log_mass), 0.0, EMPTY).unsqueeze(2).to(dtype)
    if q.shape[2] > 1:
        out: Tensor = scaled_dot_product_attention(
            q.to(dtype), state.keys, state.values, attn_mask=unwritten, scale=scale
        )
    else:
        # A decoding step: one product for all rows and heads, where torch's function makes many.
        logits = scaled(q, scale).to(dtype) @ state.keys.transpose(2, 3) + unwritten
        out = logits.softmax(dim=-1) @ state.values
    return out.to(q.dtype)


def _sums(control: Tensor, x: Tensor) -> Tensor:
    """sum_i phi_i (x) x_i of phi (B, H or 1, S, M) and x (B, H, S, D): (B, H, M, D)."""
    x = x.to(control.dtype)
    if control.shape[1] == 1:
        # One product for all heads, instead of a copy of phi for each.
        return torch.einsum("bsm,bhsd->bhmd", control.squeeze(1), x)
    return control.transpose(2, 3) @ x


def _write_one(k: Tensor, v: Tensor, log_alpha: Tensor, state: MemoryState) -> MemoryState:
    """One step of the recurrence, with the memory kept normalised: K~ <- (1-f) K~ + f (x) k."""
    write_logit = log_alpha[:, :, 0]
    log_mass = torch.logaddexp(state.log_mass, write_logit)
    fresh = ((write_logit - log_mass).exp() * is_written(write_logit)).unsqueeze(-1)
    return MemoryState(
        torch.lerp(state.keys, k.to(fresh.dtype), fresh),
        torch.lerp(state.values, v.to(fresh.dtype), fresh),
        log_mass,
    )


def _write_logits(log_alpha: Tensor, key_padding_mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """log alpha in the accumulation dtype, `EMPTY` at padding and instead of -inf."""
    log_alpha = log_alpha.to(dtype).clamp(min=EMPTY)
    if key_padding_mask is None:
        return log_alpha
    return log_alpha.masked_fill(key_padding_mask[:, None, :, None], EMPTY)
