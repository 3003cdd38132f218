"""Window attention as softmax attention with a mask, O(N^2): the form that `torch.export` traces.

The blocks of `chunked` have sizes that depend on the length, so that a graph of them is for one
length only.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from fairseq_memattn.attention.ops.window.chunked import Window


def masked_window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: "Window",
    *,
    causal: bool,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
    global_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """The same function as `window_attention` of `chunked`, without its `memory`."""
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
    out = scaled_dot_product_attention(
        q, k, v, attn_mask=seen.unsqueeze(1), dropout_p=dropout, scale=scale
    )
    return out.masked_fill(~real[:, None, :, None], 0.0).to(q.dtype)


def _near(places: Tensor, window: "Window", causal: bool) -> Tensor:
    """(B, T, T), whether a query sees a key. places: (B, T), the tokens before each."""
    step = max(window.dilation, window.stride)
    entries, phases = places // step, places % step
    ahead = entries.unsqueeze(1) - entries.unsqueeze(2)
    right = 0 if causal else (window.slots - 1) // 2
    near = (ahead <= right) & (ahead > right - window.slots)
    # A dilated window is of one phase; a queue with a stride takes the tokens of the first one.
    wanted = phases.unsqueeze(2) if window.stride == 1 else 0
    return near & (phases.unsqueeze(1) == wanted)
