"""Attention with bounded-memory control (ABC): full, causal, and one step at a time.

Source: Peng et al., "ABC: Attention with Bounded-memory Control", equations 3-5 and 12 and
appendix B.1. Keys and values are written into M slots by control vectors
phi_i = alpha_i / sum_j alpha_j, and a query reads the slots with softmax attention:

    K~ = sum_i phi_i (x) k_i,   V~ = sum_i phi_i (x) v_i,   out = V~^T softmax(scale * K~ q)

All three forms take log alpha in the place of alpha, so that no write logit overflows.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn.functional import hardshrink

from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.abc import chunked, naive, short
from fairseq_memattn.attention.ops.common import (
    EMPTY,
    MemoryState,
    accumulation_dtype,
    choose,
    full_precision,
    is_immediate,
    is_written,
    joint_mass,
    needs_gradient,
    omit_padding,
    over_tokens,
    read_scale,
    scaled,
)
from fairseq_memattn.attention.ops.context_parallel import memory_before
from fairseq_memattn.attention.ops.heads import (
    by_key_head,
    by_query_head,
    copy_keys,
    grouped_attention,
    to_query_heads,
)
from fairseq_memattn.attention.ops.packed import ends_of

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]  # q, k, v and log_alpha
Form = Callable[..., tuple[Tensor, MemoryState]]
# The same with the log of the sum of the read logits' exponentials.
Sums = Callable[..., tuple[Tensor, MemoryState, Tensor]]


def causal_backends(
    chunked: Form | Sums, naive: Form | Sums, *, normalised: bool
) -> dict[str, Form]:
    """The causal form over T positions from a given memory, by the name of the backend.

    A form takes q, k, v, log_alpha, state (None is empty), scale and chunk_size (None chooses one).
    log_alpha writes no padding: `omit_padding`.

    chunked, naive: of q, k, v, log_alpha in the accumulation dtype, state, scale and chunk_size
    normalised: whether log_alpha is that; if not, it is phi, which nothing divides
    """
    return {
        "chunked": partial(_in_pytorch, chunked, normalised),
        "naive": partial(_in_pytorch, copy_keys(naive), normalised),
        "triton": partial(_by_kernels, normalised),
    }


def _in_pytorch(
    attend: Form | Sums,
    normalised: bool,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    state: MemoryState | None,
    scale: float,
    chunk_size: int | None,
) -> tuple[Tensor, MemoryState]:
    dtype = accumulation_dtype(q)
    log_alpha = _finite(log_alpha, dtype) if normalised else log_alpha.to(dtype)
    start = state or MemoryState.empty(k, v, log_alpha)
    out, after, *_ = attend(q, k, v, log_alpha, start, scale, chunk_size)
    return out.to(q.dtype), after


def _by_kernels(normalised: bool, *args: Any, **packed: Any) -> tuple[Tensor, MemoryState]:
    return _sums_by_kernels(*args, normalised=normalised, **packed)[:2]


def _sums_by_kernels(*args: Any, normalised: bool = True, **options: Any) -> Any:
    from fairseq_memattn.attention.ops.abc.triton.operators import causal_attention

    def attend(*inputs: Any) -> Any:  # torch.compile does not trace a `partial` here
        return causal_attention(*inputs, normalised=normalised, **options)

    return copy_keys(attend)(*args)


def _finite(log_alpha: Tensor, dtype: torch.dtype) -> Tensor:
    """log alpha in the accumulation dtype, `EMPTY` in the place of -inf."""
    return log_alpha.to(dtype).clamp(min=EMPTY)


BACKENDS = causal_backends(
    partial(chunked.causal_sums, wants_sums=False), naive.causal_sums, normalised=True
)


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
    cu_seqlens: Tensor | None = None,
    context_group: ProcessGroup | None = None,
) -> Tensor:
    """ABC over whole sequences, in time and memory linear in their length.

    q: (B, H, T, D)
    k, v: (B, G, S, D), where G divides H: queries of heads g H / G and on read head g of the keys
    log_alpha: (B, G, S, M), or (B, 1, S, M) if the heads share one control; -inf writes nothing.
        In q's dtype or float32
    causal: position t reads only what positions <= t wrote, normalised over that prefix
        (footnote 5 and appendix B.1); needs T == S
    key_padding_mask: (B, S), True at padding, on either side; padding writes nothing
    scale: of the read logits; None is D ** -0.5
    chunk_size: of the causal form; affects speed alone; None chooses one
    cu_seqlens: (N + 1,) of integers, for N sequences one after another in the only row of the
        batch: sequence n has the positions from cu_seqlens[n] to cu_seqlens[n + 1], and reads
        nothing of the others. Rises from 0 to at most T, which the kernels of a GPU do not check;
        positions after the last sequence get zeros. Causal, without padding
    context_group: processes that have a part of T positions each, which may differ, of one
        sequence, in their order; all of them call it, and all or none compute gradients. Causal.
        The numbers of `cu_seqlens` are those of the whole sequence minus the first position of the
        part, and are read back from the device

    Returns (B, H, T, D) in q's dtype. A query before which nothing was written gets zeros.
    Normalisers and memories are in float32 (float64 for float64 inputs).

    Raises ValueError for shapes, dtypes and devices that do not fit together, and TypeError for
    what is no tensor.
    """
    check.shapes(q, k, v, log_alpha, key_padding_mask)
    check.options(causal, chunk_size)
    scale = read_scale(q, scale)
    if cu_seqlens is not None:
        check.packed(q, cu_seqlens, causal, key_padding_mask)
        packed = ((q, k, v, log_alpha), cu_seqlens, scale, chunk_size)
        return _packed(*packed) if context_group is None else _packed_part(*packed, context_group)
    check.context(causal, context_group)
    if not causal:
        return abc_read(q, abc_write(k, v, log_alpha, key_padding_mask), scale)
    check.causal(q, k)
    log_alpha = omit_padding(log_alpha, key_padding_mask, -torch.inf)
    attend = choose(BACKENDS, q, log_alpha.shape[3])
    state = None
    if context_group is not None:
        state = memory_before(abc_write(k, v, log_alpha), context_group)
    elif attend is BACKENDS["chunked"] and chunk_size is None and short.fits(q, k):
        alone = short.attention(q, k, v, _finite(log_alpha, accumulation_dtype(q)), scale)
        if alone is not None:
            return alone.to(q.dtype)
    out, _ = attend(q, k, v, log_alpha, state, scale, chunk_size)
    return out


def _packed(inputs: Inputs, cu_seqlens: Tensor, scale: float, chunk_size: int | None) -> Tensor:
    """The causal form of each sequence. The kernels read the lengths on the device."""
    q, _, _, log_alpha = inputs
    attend = choose(BACKENDS, q, log_alpha.shape[3])
    if attend is BACKENDS["triton"]:
        if is_immediate(cu_seqlens) and not torch.compiler.is_compiling():
            ends_of(cu_seqlens, q.shape[2])
        return attend(*inputs, None, scale, None, cu_seqlens=cu_seqlens)[0]
    ends = ends_of(cu_seqlens, q.shape[2])
    outs = []
    for start, end in itertools.pairwise(ends):
        if end > start:
            tokens = (x[:, :, start:end] for x in inputs)
            outs.append(attend(*tokens, None, scale, chunk_size)[0])
    return torch.cat([*outs, torch.zeros_like(q[:, :, ends[-1] :])], dim=2)


def _packed_part(
    inputs: Inputs, cu_seqlens: Tensor, scale: float, chunk_size: int | None, group: ProcessGroup
) -> Tensor:
    """The causal form of each sequence, of which the first may have begun in an earlier part."""
    q, k, v, log_alpha = inputs
    length, bounds = q.shape[2], cu_seqlens.tolist()
    inside = [n for n in bounds if 0 <= n <= length]
    first = min((n for n in inside if n > 0), default=length)
    places = torch.arange(length, device=q.device).unsqueeze(1)
    log_alpha = log_alpha.masked_fill(places >= bounds[-1], -torch.inf)
    last = log_alpha.masked_fill(places < max(inside, default=0), -torch.inf)
    state = memory_before(abc_write(k, v, last), group, ends=bool(inside))
    attend = choose(BACKENDS, q, log_alpha.shape[3])
    inputs = (q, k, v, log_alpha)
    begun = (x[:, :, :first] for x in inputs)
    out, _ = attend(*begun, state, scale, chunk_size)
    if first == length:
        return out
    q, k, v, log_alpha = (x[:, :, first:] for x in inputs)
    cu_seqlens = (cu_seqlens - first).clamp(0, length - first)
    rest = _packed((q, k, v, log_alpha), cu_seqlens, scale, chunk_size)
    return torch.cat([out, rest], dim=2)


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
    in_place: bool = False,
    context_group: ProcessGroup | None = None,
) -> tuple[Tensor, MemoryState]:
    """Continues causal ABC by T >= 1 positions from a memory of constant size (equation 5).

    Shapes as in `abc_attention`, with S == T. state: None at the start. Returns the output
    (B, H, T, D) and the memory after the last position; the given state is not changed.
    Differentiable, through the state too.

    in_place: overwrites the given state and returns it, for loops that keep its tensors, such as
        CUDA graphs; without gradients
    context_group: as in `abc_attention`; the first process gives the state, the others None, and
        each gets the memory after its own part

    Raises ValueError for inputs, or a state, that do not fit, and TypeError for what is no tensor
    or no `MemoryState`.
    """
    check.shapes(q, k, v, log_alpha, key_padding_mask)
    check.causal(q, k)
    if state is not None:
        check.memory_state(state, k, log_alpha)
    if in_place:
        check.in_place(state, needs_gradient(q, k, v, log_alpha, *(state or ())))
    return advance(q, k, v, log_alpha, state, key_padding_mask, scale, in_place, context_group)


@full_precision
def advance(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    state: MemoryState | None,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
    in_place: bool = False,
    context_group: ProcessGroup | None = None,
) -> tuple[Tensor, MemoryState]:
    """`abc_step` without its checks, for layers that have made their inputs."""
    scale = read_scale(q, scale)
    log_alpha = omit_padding(log_alpha, key_padding_mask, -torch.inf)
    if context_group is not None:
        state = memory_before(abc_write(k, v, log_alpha), context_group, start=state)
    return go_on(BACKENDS, STEPS, (q, k, v, log_alpha), state, scale, in_place)


def go_on(
    backends: dict[str, Form],
    steps: dict[str, Form],
    inputs: Inputs,
    state: MemoryState | None,
    scale: float,
    in_place: bool = False,
) -> tuple[Tensor, MemoryState]:
    """T >= 1 positions after a state, by a causal form or one step."""
    q, k, v, log_alpha = inputs
    if q.shape[2] > 1:
        attend = choose(backends, q, log_alpha.shape[3])
        out, after = attend(*inputs, state, scale, None)
        return out, _overwritten(state, after) if in_place else after
    before = state or MemoryState.empty(k, v, log_alpha)
    has_no_kernel = q.shape[1] != k.shape[1] or needs_gradient(*inputs, *before)
    step = choose(steps, q, log_alpha.shape[3], has_no_kernel)
    return step(*inputs, before, scale, in_place)


def step_backends(write: Callable[..., MemoryState], *, normalised: bool) -> dict[str, Form]:
    """One position of the causal form. The kernel has no gradients, nor groups of queries.

    write: the memory after one token, of k, v, log_alpha and the memory before it
    """

    def in_pytorch(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        log_alpha: Tensor,
        state: MemoryState,
        scale: float,
        in_place: bool,
    ) -> tuple[Tensor, MemoryState]:
        after = write(k, v, log_alpha, state)
        return read_memory(q, after, scale), _overwritten(state, after) if in_place else after

    def by_kernel(*args: Any) -> tuple[Tensor, MemoryState]:
        from fairseq_memattn.attention.ops.abc.triton.decoding import step

        return step(*args, normalised=normalised)

    return {"chunked": in_pytorch, "naive": in_pytorch, "triton": by_kernel}


def _overwritten(state: MemoryState | None, after: MemoryState) -> MemoryState:
    assert state is not None
    for old, new in zip(state, after, strict=True):
        old.copy_(new)
    return state


# As `BACKENDS`.
SUMS: dict[str, Sums] = {
    "chunked": chunked.causal_sums,
    "naive": copy_keys(naive.causal_sums),
    "triton": partial(_sums_by_kernels, log_sum=True),
}


@full_precision
def abc_step_sums(
    q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, state: MemoryState
) -> tuple[Tensor, MemoryState, Tensor]:
    """`abc_step`, in the accumulation dtype but for the kernels, and the log of the sum of exp(read
    logit), (B, H, T).

    Where nothing is written the sum is around `EMPTY`.
    """
    log_alpha = _finite(log_alpha, accumulation_dtype(q))
    attend = choose(SUMS, q, log_alpha.shape[3])
    return attend(q, k, v, log_alpha, state, read_scale(q, None), None)


@full_precision
def abc_write(
    k: Tensor, v: Tensor, log_alpha: Tensor, key_padding_mask: Tensor | None = None
) -> MemoryState:
    """Writes a whole sequence into a memory: equations 3 and 12.

    Shapes and errors as in `abc_attention`; k and v may be one tensor, which is then written once.
    Cross attention does this once per sentence.
    """
    check.shapes(None, k, v, log_alpha, key_padding_mask)
    log_alpha = omit_padding(log_alpha, key_padding_mask, -torch.inf)
    log_alpha = _finite(log_alpha, accumulation_dtype(k))
    phi = over_tokens(log_alpha)
    # The largest share is that of the largest logit: exp(0) over what the sum then is.
    log_mass = log_alpha.amax(dim=2) - phi.amax(dim=2).log()
    phi = phi * is_written(log_mass).unsqueeze(2)
    keys = _sums(phi, k)
    return MemoryState(keys, keys if v is k else _sums(phi, v), log_mass)


@full_precision
def abc_read(q: Tensor, state: MemoryState, scale: float | None = None) -> Tensor:
    """Reads a memory with softmax attention over its slots: equation 4.

    q: (B, H, T, D), where H is a multiple of the heads of the memory. Returns (B, H, T, D) in q's
    dtype. Empty slots get no softmax mass.

    Raises TypeError for what is no tensor or no state, and ValueError for shapes, dtypes
    and devices that do not fit together.
    """
    check.tensors(q=q)
    _check_memory(q, state)
    return read_memory(q, state, scale)


@full_precision
def read_memory(q: Tensor, state: MemoryState, scale: float | None = None) -> Tensor:
    """`abc_read` without its checks, for layers that have made their inputs."""
    dtype, differentiable = state.keys.dtype, needs_gradient(q, *state)
    # `EMPTY` in the slots into which nothing was written, 0 in the others; without a gradient.
    # Where nothing at all was written the weights are even, over values that are zero.
    unwritten = hardshrink(state.log_mass.detach(), -0.5 * EMPTY).unsqueeze(2)
    if differentiable and q.shape[2] == 1:  # a step has second derivatives
        rows = by_key_head(scaled(q, scale).to(dtype), state.keys.shape[1])
        logits = rows @ state.keys.transpose(2, 3) + unwritten
        out = by_query_head(logits.softmax(dim=-1) @ state.values, q.shape[1])
    else:
        out = grouped_attention(q.to(dtype), state.keys, state.values, unwritten, 0.0, scale)
    if differentiable:  # those zeros have no part in any gradient
        nothing = ~is_written(state.log_mass).any(dim=2)[:, :, None, None]
        out = out.masked_fill(to_query_heads(nothing, q.shape[1]), 0.0)
    return out.to(q.dtype)


def _check_memory(q: Tensor, state: MemoryState) -> None:
    """A memory that queries can read; one row, or one head, is that of all queries."""
    for name in MemoryState._fields:
        check.instance(f"state.{name}", getattr(state, name, None), Tensor)
    keys, values = state.keys, state.values
    if keys.dim() != 4 or values.shape[:3] != keys.shape[:3]:
        raise ValueError(
            "`state.keys` must be (B, H, M, D), and `state.values` must match it, "
            f"but they are {tuple(keys.shape)} and {tuple(values.shape)} instead."
        )
    batch, heads, _, width = keys.shape
    if q.dim() != 4 or q.shape[3] != width or batch not in (1, q.shape[0]) or q.shape[1] % heads:
        raise ValueError(
            f"`q` must be ({batch}, n {heads}, T, {width}) for this state, "
            f"but is {tuple(q.shape)} instead."
        )
    check.devices("state.keys", keys.device, q=q, **{"state.values": values})


def _sums(phi: Tensor, x: Tensor) -> Tensor:
    """sum_i phi_i (x) x_i of phi (B, H or 1, S, M) and x (B, H, S, D): (B, H, M, D)."""
    x = x.to(phi.dtype)
    if phi.shape[1] == 1:
        # One product for all heads, instead of a copy of phi for each.
        return torch.einsum("bsm,bhsd->bhmd", phi.squeeze(1), x)
    return phi.transpose(2, 3) @ x


def write_one(k: Tensor, v: Tensor, log_alpha: Tensor, state: MemoryState) -> MemoryState:
    """One step of the recurrence, with the memory kept normalised: K~ <- (1-f) K~ + f (x) k.

    log_alpha: (B, H or 1, 1, M), -inf where nothing is written, so that f = exp(log_alpha - z) is 0
    """
    log_alpha = log_alpha[:, :, 0].to(accumulation_dtype(k))
    fresh = (log_alpha - state.log_mass).sigmoid().unsqueeze(-1)
    return MemoryState(
        torch.lerp(state.keys, k.to(fresh.dtype), fresh),
        torch.lerp(state.values, v.to(fresh.dtype), fresh),
        joint_mass(state.log_mass, log_alpha),
    )


STEPS = step_backends(write_one, normalised=True)
