"""Sliding, dilated and strided windows: whole sequences, and one step at a time.

Source: Peng et al., "ABC: Attention with Bounded-memory Control", section 3.3 and appendix A.4.
The memory is a queue of n tokens. With phi_t = e_n and the upper shift matrix U,

    K~ <- U K~ + e_n (x) k_t,   V~ <- U V~ + e_n (x) v_t,   out = V~^T softmax(scale * K~ q)

Over whole sequences the queue is never built. Queries are cut into L blocks of C, each block sees
one band of the keys, and softmax attention runs on all blocks at once: O(N n) in time and memory.
A dilation of d is d interleaved sequences, each with a plain window; under a stride of s the band
holds every s-th key.

Positions count real tokens alone, so padding is never part of a pattern. Where padding comes
before a real token, rows are packed first: real tokens to the front, in their order. Masks over
tokens are (B, 1, T, 1) below, so that they go with keys and values.
"""

from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.attention.ops.blocks import blocks, joined, lengthen, take
from fairseq_memattn.attention.ops.checks import (
    check_causal,
    check_devices,
    check_mask,
    check_same_dtype,
    check_scale,
    check_shapes,
    check_state,
    check_type,
)
from fairseq_memattn.attention.ops.common import possibly_any
from fairseq_memattn.attention.ops.window.masked import masked_window_attention

# Queries a block, at least. Larger ones read fewer bands and mask more of each.
BLOCK_SIZE = 64


@dataclass(frozen=True)
class Window:
    """Which tokens a query sees, by its distance to them: n of them, its own included.

    slots: n; alone, the last n tokens (equation 9)
    dilation: d, to see the tokens t, t - d, ..., t - (n - 1) d (equation 15, where d is 2)
    stride: s, to put only the tokens 0, s, 2s, ... into the queue, of which a query sees the
        last n at or before it

    Raises ValueError for numbers below 1, and for a dilation together with a stride.
    """

    slots: int
    dilation: int = 1
    stride: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, Integral):
                check_type(f"window.{field.name}", value, int)
            if value < 1:
                raise ValueError(
                    f"`window.{field.name}` must be at least 1, but is {value} instead."
                )
        if self.dilation > 1 and self.stride > 1:
            raise ValueError(
                "only one of `window.dilation` and `window.stride` may be above 1, "
                f"but they are {self.dilation} and {self.stride} instead."
            )

    @property
    def capacity(self) -> int:
        """The number of tokens in a queue; a dilated one holds a window for every phase."""
        return self.slots * self.dilation

    def pushed(self, tokens: Tensor) -> Tensor:
        """The number of these tokens that entered the queue."""
        return -(-tokens // self.stride)


class WindowState(NamedTuple):
    """The queue after some prefix (ABC paper, equations 9 to 11), batch first, of constant size.

    keys    (B, H, Q, D): the newest Q = `window.capacity` keys that were pushed, in k's dtype,
            oldest first, with zeros before them while there are fewer
    values  (B, H, Q, D)
    tokens  (B,): the number of real tokens so far, pushed or not
    """

    keys: Tensor
    values: Tensor
    tokens: Tensor

    def reorder(self, new_order: Tensor) -> "WindowState":
        """The states of the hypotheses that survive a beam step.

        new_order: (B',) indices into the batch axis.
        """
        return WindowState(*(tensor.index_select(0, new_order) for tensor in self))

    @classmethod
    def empty(cls, k: Tensor, v: Tensor, window: Window) -> "WindowState":
        """The queue before the first token, shaped after k and v (B, H, S, D)."""
        return _empty(k, v, window.capacity)


def window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: Window,
    *,
    causal: bool = True,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
    global_mask: Tensor | None = None,
    max_global: int | None = None,
    memory: tuple[Tensor, Tensor] | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Every token over the window around it, in time and memory O(N n).

    q, k, v: (B, H, T, D)
    causal: the window ends at the query; otherwise floor((n - 1) / 2) of its n entries are on the
        right of the query's own, which under a stride is the last one pushed at or before it
    key_padding_mask: (B, T), True at padding, on either side
    scale: of the logits; None is D ** -0.5
    global_mask: (B, T), True at tokens that all queries see besides their windows (appendix A.1),
        if causal all queries at or after them; meant for few tokens, as each block of queries
        computes with `max_global` of them
    max_global: the most of these tokens that a row can have. None reads the number from
        `global_mask`, for which a GPU is waited for
    memory: keys and values (B, H, M, D) that all queries see besides, and no token of the sequence
    dropout: of the attention weights

    Returns (B, H, T, D) in q's dtype, zeros at padding. With n >= T, no dilation and no stride
    this is softmax attention. Rows are packed only where padding comes before a token. A GPU is not
    asked whether it does: there all rows are packed.

    Raises ValueError for shapes that do not fit together, and RuntimeError for more global tokens
    than `max_global`; on a GPU that is a device-side assertion, as nothing waits for the number.
    """
    _check_inputs(q, k, v, key_padding_mask, scale)
    check_type("causal", causal, bool)
    check_mask("global_mask", global_mask, (k.shape[0], k.shape[2]))
    check_devices("k", k.device, global_mask=global_mask)
    check_type("window", window, Window)
    _check_memory(k, memory)
    if torch.compiler.is_exporting() and memory is None:
        return masked_window_attention(
            *(q, k, v, window),
            causal=causal,
            key_padding_mask=key_padding_mask,
            scale=scale,
            global_mask=global_mask,
            dropout=dropout,
        )
    packing = _Packing.of(k, key_padding_mask)
    q, k, v = (packing.pack(x) for x in (q, k, v))
    reach = _Reach.of(window, causal, q.shape[2] - 1)
    visible, shared = packing.real, None
    if global_mask is not None:
        is_global = packing.real & packing.pack(global_mask[:, None, :, None])
        shared = _shared(k, v, is_global, causal, max_global)
        visible = packing.real & ~is_global
    if memory is not None:
        shared = _with_memory(shared, memory, q.shape[2])
    start = _empty(k, v, (reach.left + 1) * window.dilation)
    queue = _queue(start, k, v, visible, window)
    return packing.unpack(
        _attend(q, queue, packing.real, start.tokens, window, reach, scale, shared, dropout)
    )


def window_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: Window,
    state: WindowState | None,
    *,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, WindowState]:
    """Continues causal window attention by T >= 1 positions from a queue of constant size.

    Shapes as in `window_attention`. state: None at the start. Returns the output (B, H, T, D) and
    the queue after the last position; the given state is not changed, and padding changes
    nothing. Differentiable, through the state too.

    Raises ValueError for shapes, or a state, that do not fit.
    """
    _check_inputs(q, k, v, key_padding_mask, scale)
    if state is None:
        state = WindowState.empty(k, v, window)
    _check_state(state, k, window)
    if q.shape[2] == 1 and window.stride == 1 and key_padding_mask is None:
        after = _shift(state, k, v)
        return window_read(q, after, window, scale), after
    packing = _Packing.of(k, key_padding_mask)
    q, k, v = (packing.pack(x) for x in (q, k, v))
    queue = _queue(state, k, v, packing.real, window)
    after = _advance(state, queue, packing.real, window)
    if q.shape[2] == 1:
        return packing.unpack(window_read(q, after, window, scale)), after
    reach = _Reach(window.slots - 1, 0)
    out = _attend(q, queue, packing.real, state.tokens, window, reach, scale)
    return packing.unpack(out), after


def window_write(
    k: Tensor, v: Tensor, window: Window, key_padding_mask: Tensor | None = None
) -> WindowState:
    """The queue after a whole sequence, in which `window_read` sees what its last token sees.

    That is the last n tokens; under a dilation, the last n whose distance from the last token is
    a multiple of it; under a stride, the last n that were pushed. As the memory of cross attention
    this is window attention read as bounded-memory control: it forgets the rest of the source.

    Shapes and errors as in `window_attention`.
    """
    check_shapes(None, k, v, k, key_padding_mask)
    packing = _Packing.of(k, key_padding_mask)
    tokens = packing.real.sum(dim=(1, 2, 3))
    entries = torch.arange(window.capacity, device=k.device) - window.capacity
    pushed = window.pushed(tokens).unsqueeze(1) + entries  # negative before the first one
    index, is_empty = (pushed * window.stride).clamp(min=0), (pushed < 0)[:, None, :, None]
    keys, values = (take(packing.pack(x), index).masked_fill(is_empty, 0.0) for x in (k, v))
    return WindowState(keys, values, tokens)


def window_read(
    q: Tensor,
    state: WindowState,
    window: Window,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Every query over what the last token that was written sees: equation 4.

    q: (B, H, T, D), of any length. Returns (B, H, T, D) in q's dtype; zeros where nothing was
    written.

    Raises ValueError for shapes, or a state, that do not fit.
    """
    _check_inputs(q, q, q, None, scale)
    _check_state(state, q, window)
    last_phase = slice(window.dilation - 1, None, window.dilation)
    # Where nothing at all was written the weights are even, over values that are zero.
    seen = _filled(state, window) | (state.tokens == 0).view(-1, 1, 1, 1)
    return scaled_dot_product_attention(
        q,
        state.keys[:, :, last_phase],
        state.values[:, :, last_phase],
        attn_mask=seen[:, :, last_phase].transpose(2, 3),
        dropout_p=dropout,
        scale=scale,
    ).to(q.dtype)


class _Packing(NamedTuple):
    """Which tokens are real, and how they get to the front of their rows.

    real: (B, 1, T, 1), after packing; order: (B, T), None where all rows stay as they are
    """

    real: Tensor
    order: Tensor | None

    @classmethod
    def of(cls, k: Tensor, key_padding_mask: Tensor | None) -> "_Packing":
        if key_padding_mask is None:
            return cls(k.new_ones(k.shape[0], 1, k.shape[2], 1, dtype=torch.bool), None)
        real = ~key_padding_mask[:, None, :, None]
        # An exported graph is for masks of one token too, which have no part before the last.
        if not torch.compiler.is_exporting() and not possibly_any(
            key_padding_mask[:, :-1] & ~key_padding_mask[:, 1:]
        ):
            return cls(real, None)
        order = key_padding_mask.to(torch.uint8).argsort(dim=1, stable=True)
        return cls(take(real, order), order)

    def pack(self, x: Tensor) -> Tensor:
        return x if self.order is None else take(x, self.order)

    def unpack(self, out: Tensor) -> Tensor:
        """Zeros at padding, and every row in its own order again."""
        out = out.masked_fill(~self.real, 0.0)
        return out if self.order is None else take(out, self.order.argsort(dim=1))


class _Reach(NamedTuple):
    """How many entries of the queue a query sees on the left and on the right of its own."""

    left: int
    right: int

    @classmethod
    def of(cls, window: Window, causal: bool, most: int) -> "_Reach":
        """most: the largest distance of two tokens."""
        right = 0 if causal else (window.slots - 1) // 2
        most = most // (window.dilation * window.stride)
        return cls(min(window.slots - 1 - right, most), min(right, most))


class _Queue(NamedTuple):
    """What may still be seen of the past, and after it what is pushed now.

    keys, values: (B, H, Q + J, D); visible: (B, 1, Q + J, 1), False where empty or hidden
    """

    keys: Tensor
    values: Tensor
    visible: Tensor


class _Shared(NamedTuple):
    """Tokens that are seen from outside their windows too, and a memory.

    keys, values: (B, H, G, D); seen: (B, 1, T, G), by which queries
    """

    keys: Tensor
    values: Tensor
    seen: Tensor


def _shift(state: WindowState, k: Tensor, v: Tensor) -> WindowState:
    """Equation 11 for one token of every row, with one copy of the memory."""
    return WindowState(
        torch.cat([state.keys[:, :, 1:], k], dim=2),
        torch.cat([state.values[:, :, 1:], v], dim=2),
        state.tokens + 1,
    )


def _queue(state: WindowState, k: Tensor, v: Tensor, visible: Tensor, window: Window) -> _Queue:
    """The state's entries, and after them those of T packed tokens that the window pushes."""
    if window.stride > 1:
        length = k.shape[2]
        steps = torch.arange(0, length, window.stride, device=k.device)
        index = (-state.tokens % window.stride).unsqueeze(1) + steps
        # A row that pushes one token less gets an entry in its stead that is after every query.
        index = index.clamp(max=length - 1)
        k, v, visible = take(k, index), take(v, index), take(visible, index)
    return _Queue(
        torch.cat([state.keys, k], dim=2),
        torch.cat([state.values, v], dim=2),
        torch.cat([_filled(state, window), visible], dim=2),
    )


def _filled(state: WindowState, window: Window) -> Tensor:
    """(B, 1, Q, 1): which entries of the state hold a token."""
    size = state.keys.shape[2]
    entries = torch.arange(size, device=state.tokens.device)
    filled = entries >= (size - window.pushed(state.tokens)).unsqueeze(1)
    return filled[:, None, :, None]


def _advance(state: WindowState, queue: _Queue, real: Tensor, window: Window) -> WindowState:
    """The newest entries of the queue, once all real tokens have been through it."""
    tokens = state.tokens + real.sum(dim=(1, 2, 3))
    popped = window.pushed(tokens) - window.pushed(state.tokens)
    newest = popped.unsqueeze(1) + torch.arange(window.capacity, device=popped.device)
    return WindowState(take(queue.keys, newest), take(queue.values, newest), tokens)


def _shared(
    k: Tensor, v: Tensor, is_global: Tensor, causal: bool, max_global: int | None
) -> _Shared:
    """The tokens of is_global (B, 1, T, 1), as many a row as any row has, or can have."""
    counts = is_global.sum(dim=2)
    if max_global is None:
        count = int(counts.amax())
    else:
        count = min(max_global, k.shape[2])
        message = f"`global_mask` must have at most {max_global} tokens a row (`max_global`)."
        torch._assert_async((counts <= count).all(), message)
    index = (~is_global).flatten(1).to(torch.uint8).argsort(dim=1, stable=True)[:, :count]
    seen = take(is_global, index).transpose(2, 3).expand(-1, -1, k.shape[2], -1)
    if causal:
        positions = torch.arange(k.shape[2], device=k.device)
        seen = seen & (index[:, None, None] <= positions.unsqueeze(1))
    return _Shared(take(k, index), take(v, index), seen)


def _with_memory(shared: _Shared | None, memory: tuple[Tensor, Tensor], length: int) -> _Shared:
    """What all queries see, after the tokens of the sequence that are shared already."""
    keys, values = memory
    seen = torch.ones(keys.shape[0], 1, length, keys.shape[2], dtype=torch.bool, device=keys.device)
    if shared is None:
        return _Shared(keys, values, seen)
    return _Shared(
        torch.cat([shared.keys, keys], dim=2),
        torch.cat([shared.values, values], dim=2),
        torch.cat([shared.seen, seen], dim=3),
    )


def _attend(
    q: Tensor,
    queue: _Queue,
    real: Tensor,
    tokens: Tensor,
    window: Window,
    reach: _Reach,
    scale: float | None,
    shared: _Shared | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """T packed queries (B, H, T, D) over their windows in the queue.

    The queue has (reach.left + 1) * dilation entries from before these T tokens. real: which
    queries are tokens at all, (B, 1, T, 1); tokens: how many came before, (B,).
    """
    if window.dilation == 1:
        return _attend_in_blocks(q, queue, real, tokens, window, reach, scale, shared, dropout)
    phases = window.dilation
    if shared is not None:
        keys, values = (x.repeat_interleave(phases, dim=0) for x in (shared.keys, shared.values))
        shared = _Shared(keys, values, _interleave(shared.seen, phases))
    out = _attend_in_blocks(
        _interleave(q, phases),
        _Queue(*(_interleave(x, phases) for x in queue)),
        _interleave(real, phases),
        tokens.repeat_interleave(phases),
        Window(window.slots),
        reach,
        scale,
        shared,
        dropout,
    )
    by_time: Tensor = out.unflatten(0, (-1, phases)).permute(0, 2, 3, 1, 4)
    return by_time.flatten(2, 3)[:, :, : q.shape[2]]


def _interleave(x: Tensor, phases: int) -> Tensor:
    """(B, X, T, Y) as (B phases, X, T / phases, Y): the tokens of each phase are one sequence."""
    x = lengthen(x, -x.shape[2] % phases)
    by_phase: Tensor = x.unflatten(2, (-1, phases)).permute(0, 3, 1, 2, 4)
    return by_phase.flatten(0, 1)


def _attend_in_blocks(
    q: Tensor,
    queue: _Queue,
    real: Tensor,
    tokens: Tensor,
    window: Window,
    reach: _Reach,
    scale: float | None,
    shared: _Shared | None,
    dropout: float,
) -> Tensor:
    """`_attend` without dilation. A block of C queries sees a band of n + C / stride entries."""
    length = q.shape[2]
    block = min(max(BLOCK_SIZE, sum(reach) // 2) * window.stride, length)
    shift = -(-block // window.stride)
    queries = blocks(q, block)
    count = queries.shape[1]
    keys, values, visible = (_bands(x, count, shift, sum(reach) + 1 + shift) for x in queue)

    entries = torch.arange(keys.shape[3], device=q.device)
    distance = entries - reach.left - _pushed_by(tokens, block, window)
    near = (distance >= -reach.left) & (distance <= reach.right)
    # A query that is no token sees its whole band: of nothing there is no softmax.
    seen = (near & visible.transpose(3, 4)) | ~blocks(real, block)
    if shared is not None:
        keys, values = _beside(keys, shared.keys), _beside(values, shared.values)
        seen = torch.cat([seen, blocks(shared.seen, block)], dim=4)

    queries, keys, values, seen = (x.flatten(0, 1) for x in (queries, keys, values, seen))
    out = scaled_dot_product_attention(
        queries, keys, values, attn_mask=seen, dropout_p=dropout, scale=scale
    )
    return joined(out.unflatten(0, (-1, count)), length).to(q.dtype)


def _pushed_by(tokens: Tensor, block: int, window: Window) -> Tensor:
    """How many of a block's tokens are pushed up to each of them: (B, 1, 1, C, 1).

    The same for all blocks, as they start a multiple of the stride apart.
    """
    after = tokens.unsqueeze(1) + torch.arange(1, block + 1, device=tokens.device)
    pushed = window.pushed(after) - window.pushed(tokens).unsqueeze(1)
    return pushed[:, None, None, :, None]


def _bands(x: Tensor, count: int, shift: int, width: int) -> Tensor:
    """(B, X, S, Y) as (B, count, X, width, Y): bands that start `shift` apart."""
    x = lengthen(x, (count - 1) * shift + width - x.shape[2])
    bands: Tensor = _Bands.apply(x, shift, width)
    return bands.transpose(1, 2)


def _beside(bands: Tensor, shared: Tensor) -> Tensor:
    """The tokens that all blocks see, (B, H, G, D), after the band of each."""
    shared = shared.unsqueeze(1).expand(-1, bands.shape[1], -1, -1, -1)
    return torch.cat([bands, shared], dim=3)


class _Bands(torch.autograd.Function):
    """Overlapping stretches of x, as a view: (B, X, S, Y) as (B, X, L, width, Y).

    `Tensor.unfold`, but for its backward pass, which would take nearly as long as the
    attention's: the bands are added up one shift at a time, a few large sums.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, shift: int, width: int) -> Tensor:
        ctx.shift, ctx.shape = shift, x.shape
        return x.unfold(2, width, shift).transpose(3, 4)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        batch, rows, count, width, columns = grad.shape
        shift, length = ctx.shift, ctx.shape[2]
        if torch.is_grad_enabled():  # of second derivatives, which the sums below do not have
            back = torch.ops.aten.unfold_backward
            return back(grad.transpose(3, 4), ctx.shape, 2, width, shift), None, None
        covered = count * shift
        total = grad.new_zeros(batch, rows, covered + width + shift, columns)
        for start in range(0, width, shift):
            part = grad[:, :, :, start : start + shift]
            here = total[:, :, start : start + covered].unflatten(2, (count, shift))
            here[:, :, :, : part.shape[3]] += part
        return total[:, :, :length], None, None


def _empty(k: Tensor, v: Tensor, size: int) -> WindowState:
    batch, heads, _, width = k.shape
    return WindowState(
        k.new_zeros(batch, heads, size, width),
        v.new_zeros(batch, heads, size, width),
        torch.zeros(batch, dtype=torch.long, device=k.device),
    )


def _check_inputs(
    q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, scale: float | None
) -> None:
    # There are no write logits; k has a shape that they could have.
    check_shapes(q, k, v, k, key_padding_mask)
    check_scale(scale)
    check_causal(q, k)


def _check_memory(k: Tensor, memory: tuple[Tensor, Tensor] | None) -> None:
    if memory is None:
        return
    batch, heads, _, width = k.shape
    check_type("memory", memory, tuple)
    if len(memory) != 2:
        raise ValueError(f"`memory` must be keys and values, but has {len(memory)} parts instead.")
    for part in memory:
        check_same_dtype(k=k, memory=part)
        check_devices("k", k.device, memory=part)
        if part.dim() != 4 or (*part.shape[:2], part.shape[3]) != (batch, heads, width):
            raise ValueError(
                f"`memory` must be of tensors ({batch}, {heads}, M, {width}), "
                f"but one is {tuple(part.shape)} instead."
            )
    keys, values = memory
    if keys.shape != values.shape:
        raise ValueError(
            f"`memory` must be as many values as keys, but is {values.shape[2]} values "
            f"and {keys.shape[2]} keys instead."
        )


def _check_state(state: WindowState, k: Tensor, window: Window) -> None:
    queue = (*k.shape[:2], window.capacity, k.shape[3])
    check_state(state, WindowState, k, k.dtype, queue, queue, (k.shape[0],))
