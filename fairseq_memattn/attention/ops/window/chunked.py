"""Window attention in blocks of queries, and the queue of the tokens that a window pushes.

Queries are cut into L blocks of C, each block sees one band of the keys, and softmax attention runs
on all blocks at once: O(N n) in time and memory. A dilation of d is d interleaved sequences, each
with a plain window; under a stride of s the band holds every s-th key. Masks over tokens are
(B, 1, T, 1), so that they go with keys and values.
"""

from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.blocks import blocks, chunked, joined, lengthen, take
from fairseq_memattn.attention.ops.heads import grouped_attention

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
                check.instance(f"window.{field.name}", value, int)
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
        return tokens if self.stride == 1 else -(-tokens // self.stride)


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
        """The rows new_order (B',) of the batch, which survive a beam step."""
        return type(self)(*(tensor.index_select(0, new_order) for tensor in self))

    @classmethod
    def empty(cls, k: Tensor, v: Tensor, window: Window) -> "WindowState":
        """The queue before the first token, shaped after k and v (B, H, S, D)."""
        return cls.of_size(k, v, window.capacity)

    @classmethod
    def of_size(cls, k: Tensor, v: Tensor, size: int) -> "WindowState":
        """An empty queue of this size."""
        batch, heads, _, width = k.shape
        return cls(
            k.new_zeros(batch, heads, size, width),
            v.new_zeros(batch, heads, size, width),
            torch.zeros(batch, dtype=torch.long, device=k.device),
        )


class Reach(NamedTuple):
    """How many entries of the queue a query sees on the left and on the right of its own."""

    left: int
    right: int

    @classmethod
    def of(cls, window: Window, causal: bool, most: int) -> "Reach":
        """most: the largest distance of two tokens."""
        right = 0 if causal else (window.slots - 1) // 2
        most = most // (window.dilation * window.stride)
        return cls(min(window.slots - 1 - right, most), min(right, most))


class Queue(NamedTuple):
    """What may still be seen of the past, and after it what is pushed now.

    keys, values: (B, H, Q + J, D); visible: (B, 1, Q + J, 1), False where empty or hidden
    """

    keys: Tensor
    values: Tensor
    visible: Tensor


class SharedTokens(NamedTuple):
    """Tokens that are seen from outside their windows too, and a memory.

    keys, values: (B, H, G, D); seen: (B, 1, T, G), by which queries
    """

    keys: Tensor
    values: Tensor
    seen: Tensor


def shift(state: WindowState, k: Tensor, v: Tensor) -> WindowState:
    """Equation 11 for one token of every row, with one copy of the memory."""
    return WindowState(
        torch.cat([state.keys[:, :, 1:], k], dim=2),
        torch.cat([state.values[:, :, 1:], v], dim=2),
        state.tokens + 1,
    )


def queue_of(state: WindowState, k: Tensor, v: Tensor, visible: Tensor, window: Window) -> Queue:
    """The state's entries, and after them those of T packed tokens that the window pushes."""
    if window.stride > 1:
        length = k.shape[2]
        steps = torch.arange(0, length, window.stride, device=k.device)
        index = (-state.tokens % window.stride).unsqueeze(1) + steps
        # A row that pushes one token less gets an entry in its stead that is after every query.
        index = index.clamp(max=length - 1)
        k, v, visible = take(k, index), take(v, index), take(visible, index)
    return Queue(
        torch.cat([state.keys, k], dim=2),
        torch.cat([state.values, v], dim=2),
        torch.cat([is_filled(state, window), visible], dim=2),
    )


def is_filled(state: WindowState, window: Window) -> Tensor:
    """(B, 1, Q, 1): which entries of the state hold a token."""
    size = state.keys.shape[2]
    entries = torch.arange(size, device=state.tokens.device)
    filled = entries >= (size - window.pushed(state.tokens)).unsqueeze(1)
    return filled[:, None, :, None]


def advance(state: WindowState, queue: Queue, real: Tensor, window: Window) -> WindowState:
    """The newest entries of the queue, once all real tokens have been through it."""
    tokens = state.tokens + real.sum(dim=(1, 2, 3))
    popped = window.pushed(tokens) - window.pushed(state.tokens)
    newest = popped.unsqueeze(1) + torch.arange(window.capacity, device=popped.device)
    return WindowState(take(queue.keys, newest), take(queue.values, newest), tokens)


def share(
    k: Tensor, v: Tensor, is_global: Tensor, causal: bool, max_global: int | None
) -> SharedTokens:
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
    return SharedTokens(take(k, index), take(v, index), seen)


def share_memory(
    shared: SharedTokens | None, memory: tuple[Tensor, Tensor], length: int
) -> SharedTokens:
    """What all queries see, after the tokens of the sequence that are shared already."""
    keys, values = memory
    seen = torch.ones(keys.shape[0], 1, length, keys.shape[2], dtype=torch.bool, device=keys.device)
    if shared is None:
        return SharedTokens(keys, values, seen)
    return SharedTokens(
        torch.cat([shared.keys, keys], dim=2),
        torch.cat([shared.values, values], dim=2),
        torch.cat([shared.seen, seen], dim=3),
    )


def attend(
    q: Tensor,
    queue: Queue,
    real: Tensor,
    tokens: Tensor,
    window: Window,
    reach: Reach,
    scale: float | None,
    shared: SharedTokens | None = None,
    dropout: float = 0.0,
    log_sum: bool = False,
) -> Tensor:
    """T packed queries (B, H, T, D) over their windows in the queue.

    The queue has (reach.left + 1) * dilation entries from before these T tokens. real: which
    queries are tokens at all, (B, 1, T, 1); tokens: how many came before, (B,); log_sum: as in
    `grouped_attention`.
    """
    if window.dilation == 1:
        options = (window, reach, scale, shared, dropout, log_sum)
        return _attend_in_blocks(q, queue, real, tokens, *options)
    phases = window.dilation
    if shared is not None:
        keys, values = (x.repeat_interleave(phases, dim=0) for x in (shared.keys, shared.values))
        shared = SharedTokens(keys, values, _interleave(shared.seen, phases))
    out = _attend_in_blocks(
        _interleave(q, phases),
        Queue(*(_interleave(x, phases) for x in queue)),
        _interleave(real, phases),
        tokens.repeat_interleave(phases),
        Window(window.slots),
        reach,
        scale,
        shared,
        dropout,
        log_sum,
    )
    by_time: Tensor = out.unflatten(0, (-1, phases)).permute(0, 2, 3, 1, 4)
    return by_time.flatten(2, 3)[:, :, : q.shape[2]]


def _interleave(x: Tensor, phases: int) -> Tensor:
    """(B, X, T, Y) as (B phases, X, T / phases, Y): the tokens of each phase are one sequence."""
    return chunked(x, phases).permute(0, 3, 1, 2, 4).flatten(0, 1)


def _attend_in_blocks(
    q: Tensor,
    queue: Queue,
    real: Tensor,
    tokens: Tensor,
    window: Window,
    reach: Reach,
    scale: float | None,
    shared: SharedTokens | None,
    dropout: float,
    log_sum: bool,
) -> Tensor:
    """`attend` without dilation. A block of C queries sees a band of n + C / stride entries."""
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
    out = grouped_attention(queries, keys, values, seen, dropout, scale, log_sum)
    out = joined(out.unflatten(0, (-1, count)), length)
    return out if log_sum else out.to(q.dtype)


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


def masked_window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: Window,
    *,
    causal: bool,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
    global_mask: Tensor | None = None,
    dropout: float = 0.0,
    log_sum: bool = False,
) -> Tensor:
    """`window_attention` without its `memory`, as softmax attention with a mask, O(N^2).

    `torch.export` traces it: the blocks have sizes that depend on the length, so that a graph of
    them is for one length only.
    """
    if key_padding_mask is None:
        real = torch.ones_like(k[:, 0, :, 0], dtype=torch.bool)
    else:
        real = ~key_padding_mask
    places = real.long().cumsum(dim=1) - 1
    seen = _near(places, window, causal) & real.unsqueeze(1)
    if global_mask is not None:
        shown = (global_mask & real).unsqueeze(1)
        if causal:
            shown = shown & (places.unsqueeze(1) <= places.unsqueeze(2))
        seen = seen | shown
    # A query that is no token sees everything: of nothing there is no softmax.
    seen = seen | ~real.unsqueeze(2)
    out = grouped_attention(q, k, v, seen.unsqueeze(1), dropout, scale, log_sum)
    out = out.masked_fill(~real[:, None, :, None], 0.0)
    return out if log_sum else out.to(q.dtype)


def _near(places: Tensor, window: Window, causal: bool) -> Tensor:
    """(B, T, T), whether a query sees a key. places: (B, T), the tokens before each."""
    step = max(window.dilation, window.stride)
    entries, phases = places // step, places % step
    ahead = entries.unsqueeze(1) - entries.unsqueeze(2)
    right = 0 if causal else (window.slots - 1) // 2
    near = (ahead <= right) & (ahead > right - window.slots)
    # A dilated window is of one phase; a queue with a stride takes the tokens of the first one.
    wanted = phases.unsqueeze(2) if window.stride == 1 else 0
    return near & (phases.unsqueeze(1) == wanted)
