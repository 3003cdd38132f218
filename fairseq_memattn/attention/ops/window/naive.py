"""Slow, obvious forms of window attention: the oracle of `window.py`.

Loops over queries, everything in float64; and the recurrences of the paper, taken literally.
"""

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.abc.naive import read
from fairseq_memattn.attention.ops.window.chunked import Window


def seen_from(t: int, length: int, window: Window, causal: bool) -> list[int]:
    """The positions that the query at t sees of a sequence of real tokens, in their order."""
    if window.stride > 1:
        pattern = [i for i in range(length) if i % window.stride == 0]
    else:
        pattern = [i for i in range(length) if i % window.dilation == t % window.dilation]
    ahead = 0 if causal else (window.slots - 1) // 2
    behind = window.slots - ahead
    return [i for i in pattern if i <= t][-behind:] + [i for i in pattern if i > t][:ahead]


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
) -> Tensor:
    """The same function as `fairseq_memattn.attention.window_attention`."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v = (tensor.double() for tensor in (q, k, v))
    nothing = torch.zeros(k.shape[0], k.shape[2], dtype=torch.bool)
    padding = nothing if key_padding_mask is None else key_padding_mask
    is_global = nothing if global_mask is None else global_mask
    rows = []
    for b in range(q.shape[0]):
        tokens = [i for i in range(k.shape[2]) if not padding[b, i]]
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                if i not in tokens:
                    rows.append(torch.zeros_like(q[b, h, i]))
                    continue
                own = tokens.index(i)
                seen = {tokens[t] for t in seen_from(own, len(tokens), window, causal)}
                seen |= {j for j in tokens if is_global[b, j] and (j <= i or not causal)}
                where = sorted(seen)
                rows.append(read(q[b, h, i], k[b, h, where], v[b, h, where], scale))
    return torch.stack(rows).view_as(q)


def push(queue: Tensor, token: Tensor) -> Tensor:
    """Equation 11, U K~ + e_n (x) k, with U the upper shift matrix. queue: (n, D); token: (D,)."""
    slots = queue.shape[0]
    shift = torch.ones(slots, slots, dtype=queue.dtype).triu(1).tril(1)
    last = torch.zeros(slots, dtype=queue.dtype)
    last[-1] = 1
    return shift @ queue + torch.outer(last, token)


def queue_of(tokens: Tensor, slots: int) -> Tensor:
    """The queue (n, D) that tokens (T, D) leave behind: Table 1's sliding window."""
    queue = tokens.new_zeros(slots, tokens.shape[1])
    for token in tokens:
        queue = push(queue, token)
    return queue


def odd_even_attention(q: Tensor, k: Tensor, v: Tensor, slots: int, scale: float) -> Tensor:
    """Appendix A.4 for one head of one sentence: two queues, and t says which of them is meant.

    q, k, v: (T, D). Returns (T, D). Slots that nothing was pushed into yet are not read.
    """
    keys, values = (tokens.new_zeros(2, slots, tokens.shape[1]) for tokens in (k, v))
    outputs = []
    for t in range(len(q)):
        turn = t % 2
        keys, values = keys.clone(), values.clone()
        keys[turn] = push(keys[turn], k[t])
        values[turn] = push(values[turn], v[t])
        filled = min(slots, t // 2 + 1)
        outputs.append(read(q[t], keys[turn][-filled:], values[turn][-filled:], scale))
    return torch.stack(outputs)
