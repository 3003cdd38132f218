"""Sliding, dilated and strided windows: whole sequences, and one step at a time.

Source: Peng et al., "ABC: Attention with Bounded-memory Control", section 3.3 and appendix A.4.
The memory is a queue of n tokens. With phi_t = e_n and the upper shift matrix U,

    K~ <- U K~ + e_n (x) k_t,   V~ <- U V~ + e_n (x) v_t,   out = V~^T softmax(scale * K~ q)

Over whole sequences the queue is never built (`chunked`). Positions count real tokens alone, so
padding is never part of a pattern. Where padding comes before a real token, rows are packed first:
real tokens to the front, in their order.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.blocks import take, tokens_first
from fairseq_memattn.attention.ops.common import possibly_any
from fairseq_memattn.attention.ops.heads import grouped_attention
from fairseq_memattn.attention.ops.window.chunked import (
    Reach,
    Window,
    WindowState,
    advance,
    attend,
    is_filled,
    masked_window_attention,
    queue_of,
    share,
    share_memory,
    shift,
)

__all__ = [
    "Window",
    "WindowState",
    "window_attention",
    "window_read",
    "window_step",
    "window_write",
]


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
    log_sum: bool = False,
) -> Tensor:
    """Every token over the window around it, in time and memory O(N n).

    q: (B, H, T, D); k, v: (B, G, T, D), where G divides H, as in `abc_attention`
    causal: the window ends at the query; otherwise floor((n - 1) / 2) of its n entries are on the
        right of the query's own, which under a stride is the last one pushed at or before it
    key_padding_mask: (B, T), True at padding, on either side
    scale: of the logits; None is D ** -0.5
    global_mask: (B, T), True at tokens that all queries see besides their windows (appendix A.1),
        if causal all queries at or after them; meant for few tokens, as each block of queries
        computes with `max_global` of them
    max_global: the most of these tokens that a row can have. None reads the number from
        `global_mask`, for which a GPU is waited for
    memory: keys and values (B, G, M, D) that all queries see besides, and no token of the sequence
    dropout: of the attention weights
    log_sum: appends the log of the sum of exp(logit) to each output, (B, H, T, D + 1), in float32
        (float64 for float64 inputs), to merge it with other attentions

    Returns (B, H, T, D) in q's dtype, zeros at padding. With n >= T, no dilation and no stride
    this is softmax attention. Rows are packed only where padding comes before a token. A GPU is not
    asked whether it does: there all rows are packed.

    Raises ValueError for shapes that do not fit together, and RuntimeError for more global tokens
    than `max_global`; on a GPU that is a device-side assertion, as nothing waits for the number.
    """
    _check_inputs(q, k, v, key_padding_mask)
    check.instance("causal", causal, bool)
    check.mask("global_mask", global_mask, (k.shape[0], k.shape[2]))
    check.devices("k", k.device, global_mask=global_mask)
    check.instance("window", window, Window)
    if torch.compiler.is_exporting() and memory is None:
        return masked_window_attention(
            *(q, k, v, window),
            causal=causal,
            key_padding_mask=key_padding_mask,
            scale=scale,
            global_mask=global_mask,
            dropout=dropout,
            log_sum=log_sum,
        )
    packing = Packing.of(k, key_padding_mask)
    q, k, v = (packing.pack(x) for x in (q, k, v))
    reach = Reach.of(window, causal, q.shape[2] - 1)
    visible, shared = packing.real, None
    if global_mask is not None:
        is_global = packing.real & packing.pack(global_mask[:, None, :, None])
        shared = share(k, v, is_global, causal, max_global)
        visible = packing.real & ~is_global
    if memory is not None:
        check.shape("memory", memory[1], memory[0].shape)
        shared = share_memory(shared, memory, q.shape[2])
    start = WindowState.of_size(k, v, (reach.left + 1) * window.dilation)
    queue = queue_of(start, k, v, visible, window)
    options = (window, reach, scale, shared, dropout, log_sum)
    return packing.unpack(attend(q, queue, packing.real, start.tokens, *options))


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
    _check_inputs(q, k, v, key_padding_mask)
    if state is None:
        state = WindowState.empty(k, v, window)
    _check_state(state, k, window)
    if q.shape[2] == 1 and window.stride == 1 and key_padding_mask is None:
        after = shift(state, k, v)
        return window_read(q, after, window, scale), after
    packing = Packing.of(k, key_padding_mask)
    q, k, v = (packing.pack(x) for x in (q, k, v))
    queue = queue_of(state, k, v, packing.real, window)
    after = advance(state, queue, packing.real, window)
    if q.shape[2] == 1:
        return packing.unpack(window_read(q, after, window, scale)), after
    reach = Reach(window.slots - 1, 0)
    out = attend(q, queue, packing.real, state.tokens, window, reach, scale)
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
    check.shapes(None, k, v, k, key_padding_mask)
    packing = Packing.of(k, key_padding_mask)
    tokens = packing.real.sum(dim=(1, 2, 3))
    entries = torch.arange(window.capacity, device=k.device) - window.capacity
    pushed = window.pushed(tokens).unsqueeze(1) + entries  # negative before the first one
    index, is_empty = (pushed * window.stride).clamp(min=0), (pushed < 0)[:, None, :, None]
    keys, values = (take(packing.pack(x), index).masked_fill(is_empty, 0.0) for x in (k, v))
    return WindowState(keys, values, tokens)


def window_read(
    q: Tensor, state: WindowState, window: Window, scale: float | None = None, dropout: float = 0.0
) -> Tensor:
    """Every query over what the last token that was written sees: equation 4.

    q: (B, H, T, D), of any length. Returns (B, H, T, D) in q's dtype; zeros where nothing was
    written.

    Raises ValueError for shapes, or a state, that do not fit.
    """
    _check_inputs(q, q, q, None)
    check.instance("state", state, WindowState)
    heads = state.keys.shape[1]
    check.query_heads("state.keys", heads, q)
    _check_state(state, q[:, :heads], window)
    last_phase = slice(window.dilation - 1, None, window.dilation)
    # Where nothing at all was written the weights are even, over values that are zero.
    seen = is_filled(state, window) | (state.tokens == 0).view(-1, 1, 1, 1)
    keys, values = (x[:, :, last_phase] for x in state[:2])
    mask = seen[:, :, last_phase].transpose(2, 3)
    return grouped_attention(q, keys, values, mask, dropout, scale).to(q.dtype)


class Packing(NamedTuple):
    """Which tokens are real, and how they get to the front of their rows.

    real: (B, 1, T, 1), after packing; order: (B, T), None where all rows stay as they are
    is_padded: whether some may not be real
    """

    real: Tensor
    order: Tensor | None
    is_padded: bool = True

    @classmethod
    def of(cls, k: Tensor, key_padding_mask: Tensor | None) -> "Packing":
        if key_padding_mask is None:
            return cls(k.new_ones(k.shape[0], 1, k.shape[2], 1, dtype=torch.bool), None, False)
        real = ~key_padding_mask[:, None, :, None]
        # An exported graph is for masks of one token too, which have no part before the last.
        if not torch.compiler.is_exporting() and not possibly_any(
            key_padding_mask[:, :-1] & ~key_padding_mask[:, 1:]
        ):
            return cls(real, None)
        order = tokens_first(key_padding_mask)
        return cls(take(real, order), order)

    def pack(self, x: Tensor) -> Tensor:
        return x if self.order is None else take(x, self.order)

    def unpack(self, out: Tensor) -> Tensor:
        """Zeros at padding, and every row in its own order again."""
        if self.is_padded:
            out = out.masked_fill(~self.real, 0.0)
        return out if self.order is None else take(out, self.order.argsort(dim=1))


def _check_inputs(q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> None:
    # There are no write logits; k has a shape that they could have.
    check.shapes(q, k, v, k, key_padding_mask)
    check.causal(q, k)


def _check_state(state: WindowState, k: Tensor, window: Window) -> None:
    queue = (*k.shape[:2], window.capacity, k.shape[3])
    check.state(state, WindowState, k, k.dtype, queue, queue, (k.shape[0],))
