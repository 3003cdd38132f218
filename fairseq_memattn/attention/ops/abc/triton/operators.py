"""The operators of the causal form and of its backward pass, registered with torch."""

from typing import Any

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.abc.triton import backward, forward
from fairseq_memattn.attention.ops.abc.triton.launch import (
    Launch,
    block,
    check_inputs,
    rows_contiguous,
    strides_of,
)
from fairseq_memattn.attention.ops.common import MemoryState, is_written


def causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    key_padding_mask: Tensor | None,
    state: MemoryState | None,
    scale: float,
    chunk_size: int | None,
    *,
    normalised: bool,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, MemoryState]:
    """ABC over T positions from a given memory, or from an empty one.

    q, k, v: (B, H, T, D); state: of every sequence
    log_alpha: (B, H or 1, T, M), without padding; or phi that nothing divides if not normalised
    key_padding_mask: (B, T), what means of keys and values leave out; chunk_size: ignored
    cu_seqlens: (N + 1,), where B is 1 and row 0 holds N sequences one after another: sequence n
        from cu_seqlens[n] to cu_seqlens[n + 1]

    Returns the output in q's dtype and the memories after the last positions.
    Raises ValueError and RuntimeError as `check_inputs` does.
    """
    check_inputs(q, k, v, log_alpha, *(state or ()))
    start = (None,) * 3 if state is None else tuple(state)
    out, keys, values, log_mass, *_ = abc_causal(
        q, k, v, log_alpha, key_padding_mask, *start, cu_seqlens, scale, normalised
    )
    return out, MemoryState(keys, values, log_mass)


def _scan_masses(
    launch: Launch,
    log_alpha: Tensor,
    before: Tensor,
    after: Tensor,
    start: Tensor | None,
    end: Tensor,
) -> None:
    """Writes the normalisers (h, G, M) around each chunk, and the last ones (N, h, M)."""
    heads, slots = launch.control_heads, launch.slots
    added = launch.masses(heads)
    launch.run(
        forward.masses,
        (launch.total_chunks, heads),
        *(log_alpha, added, *strides_of(log_alpha), *launch.of_chunks),
        BLOCK_M=launch.sizes.block_m,
    )
    block_m = min(block(slots), 32)
    launch.run(
        forward.scan_masses,
        (launch.sequences * heads, -(-slots // block_m)),
        *(added, before, after, end if start is None else start, end),
        *(launch.tables[0], launch.chunks, launch.total_chunks, heads),
        BLOCK_M=block_m,
        STARTED=start is not None,
        warps=1,
    )


def _find_steep(launch: Launch, log_alpha: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Which chunks (h, G) are not factored."""
    steep = launch.forms()
    if launch.normalised:
        launch.run(
            forward.find_steep,
            (launch.total_chunks, launch.control_heads),
            *(log_alpha, before, after, steep, *strides_of(log_alpha), *launch.of_chunks),
            BLOCK_M=launch.sizes.block_m,
        )
    return steep


def _scan_states(
    launch: Launch,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    around: tuple[Tensor, ...],
    start: tuple[Tensor, ...] | None,
    end: tuple[Tensor, ...],
) -> tuple[Tensor, Tensor]:
    """The memories of each chunk; writes the last keys and values to `end`.

    Where sequences have several segments, what each of them adds comes first, then the memories
    before each, one after another, and then those of their chunks.

    around: the normalisers before and after each chunk
    """
    memories = launch.memories(), launch.memories()
    tokens, strides = (k, v, log_alpha), strides_of(k, v, log_alpha)

    def states(*given_and_last: Tensor, **flags: bool) -> None:
        launch.each_segment(
            forward.states, *tokens, *memories, *around, *given_and_last, *strides, **flags
        )

    given = start[:2] if start else end[:2]
    if launch.is_divided:
        of_segments = launch.of_segments()
        states(*of_segments, *of_segments, GIVEN=False, EACH=False, LAST=True)
        launch.scan_segments(
            *(*of_segments, *around, *around, *(start or end), *end),
            GIVEN=start is not None,
            LAST=True,
            BACKWARD=False,
        )
        states(*of_segments, *of_segments, GIVEN=True, EACH=True, LAST=False)
    else:
        states(*given, *end[:2], GIVEN=start is not None, EACH=True, LAST=True)
    return memories


@torch.library.custom_op("memattn::abc_causal", mutates_args=())
def abc_causal(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    padding: Tensor | None,
    start_keys: Tensor | None,
    start_values: Tensor | None,
    start_mass: Tensor | None,
    cu_seqlens: Tensor | None,
    scale: float,
    normalised: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The output, the last memory, of each chunk the normalisers around it and its form.

    And the log of the softmax's sum of each query.
    """
    q, k, v, log_alpha = (rows_contiguous(x) for x in (q, k, v, log_alpha))
    launch = Launch(q, log_alpha.shape[1], log_alpha.shape[3], padding, cu_seqlens, normalised)
    start = _present(start_keys, start_values, start_mass)
    before, after = (launch.masses(log_alpha.shape[1]) for _ in range(2))
    end = launch.states()
    _scan_masses(launch, log_alpha, before, after, start[2] if start else None, end[2])
    keys, values = _scan_states(launch, k, v, log_alpha, (before, after), start, end)
    steep = _find_steep(launch, log_alpha, before, after)
    out = launch.by_time(q.shape[3], q.dtype)
    log_total = launch.by_head()
    launch.each_chunk(
        forward.attend,
        *(q, k, v, log_alpha, keys, values, before, after, steep, out, log_total),
        *strides_of(q, k, v, log_alpha),
        last=(scale,),
    )
    return out.transpose(1, 2), *end, before, after, steep, log_total


def _present(*tensors: Tensor | None) -> tuple[Tensor, ...] | None:
    """Contiguous copies of a memory, if there is one."""
    present = tuple(x.contiguous() for x in tensors if x is not None)
    return present if len(present) == len(tensors) else None


@abc_causal.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    padding: Tensor | None,
    start_keys: Tensor | None,
    start_values: Tensor | None,
    start_mass: Tensor | None,
    cu_seqlens: Tensor | None,
    scale: float,
    normalised: bool,
) -> tuple[Tensor, ...]:
    launch = Launch(q, log_alpha.shape[1], log_alpha.shape[3], padding, cu_seqlens, normalised)
    before, after = (launch.masses(log_alpha.shape[1]) for _ in range(2))
    out = launch.by_time(q.shape[3], q.dtype)
    return out.transpose(1, 2), *launch.states(), before, after, launch.forms(), launch.by_head()


def _scan_gradients(
    launch: Launch,
    log_alpha: Tensor,
    memories: tuple[Tensor, Tensor],
    around: tuple[Tensor, Tensor],
    steep: Tensor,
    grad_out: Tensor,
    of_queries: tuple[Tensor, Tensor, Tensor],
    masses: Tensor,
    ends: tuple[Tensor, ...] | None,
    starts: list[Tensor] | None,
) -> None:
    """Writes dH, dG and dU after each chunk to `memories` and `masses`, the first ones to `starts`.

    of_queries: reading, grad_logits and sums of `attend_queries`; ends: after the last chunk
    """
    q = launch.q
    tokens = (q, log_alpha, *around, steep, grad_out, *of_queries, masses, *memories)
    strides = strides_of(q, log_alpha, grad_out)

    def states_back(*given_and_last: Tensor, **flags: bool) -> None:
        launch.each_segment(backward.states_back, *tokens, *given_and_last, *strides, **flags)

    given, last = (x or (*memories, masses) for x in (ends, starts))
    if launch.is_divided:
        of_segments = launch.of_segments()
        added, of_mass = (of_segments[0].new_empty(of_segments[0].shape[:3]) for _ in range(2))
        states_back(*of_segments, added, *of_segments, added, GIVEN=False, EACH=False, LAST=True)
        launch.scan_segments(
            *(*of_segments, added, of_mass, *around, *given, *last),
            GIVEN=ends is not None,
            LAST=starts is not None,
            BACKWARD=True,
        )
        given = (*of_segments, of_mass)
        states_back(*given, *given, GIVEN=True, EACH=True, LAST=False)
    else:
        states_back(*given, *last, GIVEN=ends is not None, EACH=True, LAST=starts is not None)


@torch.library.custom_op("memattn::abc_causal_backward", mutates_args=())
def abc_causal_backward(
    grad_out: Tensor,
    grad_keys: Tensor | None,
    grad_values: Tensor | None,
    grad_mass: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    padding: Tensor | None,
    start_keys: Tensor | None,
    start_values: Tensor | None,
    start_mass: Tensor | None,
    cu_seqlens: Tensor | None,
    before: Tensor,
    after: Tensor,
    steep: Tensor,
    log_total: Tensor,
    scale: float,
    normalised: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v, log_alpha, and of the first memory: keys, values, log mass (N, H, M).

    The memories are computed once more, of some heads at a time where they are much larger than
    the inputs. The gradients of log_alpha and of a log mass that heads share have a part of each
    head. Those of the first memory are empty if there is none.
    """
    q, k, v, log_alpha, grad_out = (rows_contiguous(x) for x in (q, k, v, log_alpha, grad_out))
    launch = Launch(q, log_alpha.shape[1], log_alpha.shape[3], padding, cu_seqlens, normalised)
    kept = (before, after, steep, log_total)
    start = _present(start_keys, start_values, start_mass)
    grads_of_end = (grad_keys, grad_values, grad_mass)
    grads = [launch.by_time(q.shape[3], q.dtype)]
    grads.append(launch.by_time(log_alpha.shape[3], _gradient_dtype(launch, log_alpha)))
    tokens = (k, v, log_alpha, grad_out)
    starts = [
        _gradients_of_heads(launch, heads, *tokens, start, kept, grads_of_end, scale, grads)
        for heads in launch.groups_of_heads(3 * q.nbytes + log_alpha.nbytes)
    ]
    is_one = start is None or len(starts) == 1
    first = starts[0] if is_one else [torch.cat(x, dim=1) for x in zip(*starts, strict=True)]
    grad_q, grad_log_alpha, grad_v, grad_k = (x.transpose(1, 2) for x in grads)
    return grad_q, grad_k, grad_v, grad_log_alpha, *first  # type: ignore[return-value]


def _gradient_dtype(launch: Launch, log_alpha: Tensor) -> torch.dtype:
    """Of the gradient of log_alpha."""
    return log_alpha.dtype if log_alpha.dtype == launch.of_memories else torch.float32


def _gradients_of_heads(
    whole: Launch,
    heads: slice,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    grad_out: Tensor,
    start: tuple[Tensor, ...] | None,
    kept: tuple[Tensor, ...],
    grads_of_end: tuple[Tensor | None, ...],
    scale: float,
    grads: list[Tensor],
) -> list[Tensor]:
    """Writes the gradients of q, log_alpha, v and k of some heads, and returns those of `start`.

    Those of v and k are allocated for all heads once what the queries need is freed.
    """
    launch = whole.of_heads(heads)
    q = launch.q
    k, v, log_alpha, grad_out = (whole.choose(x, heads) for x in (k, v, log_alpha, grad_out))
    before, after, steep = (whole.choose(x, heads, dim=0) for x in kept[:3])
    log_total = whole.choose(kept[3], heads, dim=2)
    if start is not None:
        start = tuple(whole.choose(x, heads).contiguous() for x in start)
    if launch.is_centred:
        unread = launch.unread
        key, value = (mean_of_tokens(x, unread) for x in (k, v))
        # The kernels index it by all heads.
        log_total = whole.choose(whole.by_head(), heads, dim=2).copy_(
            log_total - logits_of_mean(q, key, scale)
        )
        k, v = rows_contiguous(k - key), rows_contiguous(v - value)
        start = centre_memory(start, key, value) if start else None
    end = launch.states()
    keys, values = _scan_states(launch, k, v, log_alpha, (before, after), start, end)
    grads_of_end = tuple(None if x is None else whole.choose(x, heads) for x in grads_of_end)
    ends = _gradients_at_the_end(whole, end, grads_of_end)
    starts = [x.new_empty(x.shape if start else 0) for x in (*end[:2], end[0][..., 0])]
    del end
    grad_q, grad_log_alpha = (whole.choose(x, heads, dim=2) for x in grads[:2])
    reading, grad_logits = (launch.by_time(log_alpha.shape[3], keys.dtype) for _ in range(2))
    sums, masses = (launch.masses(q.shape[1]) for _ in range(2))
    inputs = (q, k, v, log_alpha, keys, values, before, after, steep, log_total)
    means = whole.by_head()
    for only_means in (True, False):
        if only_means and log_alpha.shape[3] <= launch.sizes.block_m:
            continue
        launch.each_chunk(
            backward.attend_queries,
            *(*inputs, grad_out, means, grad_q, grad_log_alpha, reading, grad_logits, sums),
            *strides_of(q, k, v, log_alpha, grad_out),
            last=(scale, q.shape[1]),
            MEANS=only_means,
        )
    _scan_gradients(
        *(launch, log_alpha, (keys, values), (before, after), steep, grad_out),
        *((reading, grad_logits, sums), masses, ends, starts if start else None),
    )
    writing = (log_alpha, before, after, steep)
    # What the values alone need is freed before the gradient of the keys is allocated.
    passes = [(q, k, grad_logits, keys, True), (grad_out, v, reading, values, False)]
    del inputs, means, reading, grad_logits, keys, values
    for place in (2, 3):
        x, y, weights, later, is_of_keys = passes.pop()
        if place == len(grads):
            grads.append(whole.by_time(y.shape[3], y.dtype))
        launch.each_chunk(
            backward.attend_tokens,
            *(x, y, *writing, weights, later, masses),
            *(whole.choose(grads[place], heads, dim=2), grad_log_alpha),
            *strides_of(x, y, log_alpha),
            last=(q.shape[1],),
            OF_KEYS=is_of_keys,
        )
    if start is not None and launch.normalised:
        starts[2] = _gradient_of_mass(starts, start)
    return starts


def _gradient_of_mass(grads: list[Tensor], start: tuple[Tensor, ...]) -> Tensor:
    """The gradient of the log mass (N, H, M) of a memory from dH, dG and dU."""
    grad_keys, grad_values, grad_mass = grads
    keys, values, _ = start
    return (grad_keys * keys).sum(-1) + (grad_values * values).sum(-1) - grad_mass


def _gradients_at_the_end(
    launch: Launch, end: tuple[Tensor, ...], grads: tuple[Tensor | None, ...]
) -> tuple[Tensor, ...] | None:
    """dH, dG (N, H, M, D) and dU (N, H, M) after the last chunk; None if all of them are 0."""
    if all(x is None for x in grads):
        return None
    keys, values, mass = (
        torch.zeros_like(x) if grad is None else grad.contiguous()
        for x, grad in zip(end, grads, strict=True)
    )
    if not launch.normalised:
        return keys, values, keys.new_zeros(keys.shape[:3])
    carried = (keys * end[0]).sum(-1) + (values * end[1]).sum(-1)
    # The normaliser of a shared control belongs to all heads: each has a part of its gradient.
    return keys, values, carried - mass / launch.sharing


@abc_causal_backward.register_fake
def _(
    grad_out: Tensor,
    grad_keys: Tensor | None,
    grad_values: Tensor | None,
    grad_mass: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    padding: Tensor | None,
    start_keys: Tensor | None,
    *rest: Any,
) -> tuple[Tensor, ...]:
    launch = Launch(q, log_alpha.shape[1], log_alpha.shape[3], None, None, True)
    grads = [launch.by_time(q.shape[3], x.dtype) for x in (q, k, v)]
    grads.append(launch.by_time(log_alpha.shape[3], _gradient_dtype(launch, log_alpha)))
    if start_keys is None:
        starts = [q.new_empty(0, dtype=torch.float32) for _ in range(3)]
    else:
        shape = start_keys.shape
        starts = [start_keys.new_empty(x) for x in (shape, shape, shape[:3])]
    return (*(x.transpose(1, 2) for x in grads), *starts)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.scale, ctx.normalised = inputs
    _, _, _, _, *of_chunks = output
    ctx.mark_non_differentiable(*of_chunks)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *of_chunks)


def _gradients(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors
    q, _, _, log_alpha, _, start_keys, _, start_mass, *_ = tensors
    grad_out = torch.zeros_like(q) if grads[0] is None else grads[0]
    grad_q, grad_k, grad_v, grad_log_alpha, *first = abc_causal_backward(
        grad_out, *grads[1:4], *tensors, ctx.scale, ctx.normalised
    )
    start: list[Tensor | None] = [None] * 3
    if start_keys is not None:
        start = [*first[:2], _sum_heads(first[2], start_mass) if ctx.normalised else None]
    grad_log_alpha = _sum_heads(grad_log_alpha, log_alpha).to(log_alpha.dtype)
    return grad_q, grad_k, grad_v, grad_log_alpha, None, *start, None, None, None


def _sum_heads(grad: Tensor, like: Tensor) -> Tensor:
    """The gradient of a tensor that all heads shared, if they did."""
    return grad if grad.shape[1] == like.shape[1] else grad.sum(dim=1, keepdim=True)


abc_causal.register_autograd(_gradients, setup_context=_save)


# In half precision the backward pass takes keys and values without their means over the tokens. The
# weights of the tokens in a slot sum to 1, so that a vector added to all keys, or to all values,
# changes no gradient of q, k, v and log_alpha. With it, these gradients are small differences of
# large numbers, which bfloat16 and TF32 round.


def mean_of_tokens(x: Tensor, padding: Tensor | None) -> Tensor:
    """The mean (B, H, 1, D) of x (B, H, T, D), in its dtype.

    padding: (B, T); these tokens do not count
    """
    if padding is None:
        return x.mean(dim=2, keepdim=True)
    padding = padding[:, None, :, None]
    count = (~padding).sum(dim=2, keepdim=True).clamp(min=1)
    total = x.masked_fill(padding, 0).sum(dim=2, keepdim=True, dtype=torch.float32)
    return (total / count).to(x.dtype)


def centre_memory(start: tuple[Tensor, ...], key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """A memory (keys, values, log mass) whose tokens lose these means. Empty slots stay empty."""
    keys, values, log_mass = start
    held = is_written(log_mass).unsqueeze(3)
    return (
        torch.where(held, keys - key.float(), keys),
        torch.where(held, values - value.float(), values),
        log_mass,
    )


def logits_of_mean(q: Tensor, key: Tensor, scale: float) -> Tensor:
    """What the mean of the keys adds to the logits of every slot: (B, T, H), in float32."""
    return scale * (q.float() @ key.float().mT).squeeze(3).transpose(1, 2)
