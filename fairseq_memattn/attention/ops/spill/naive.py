"""The slow, obvious form of a window that spills: the oracle of `ops.spill`."""

from collections.abc import Callable

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.spill import Places
from fairseq_memattn.attention.ops.window.chunked import Window
from fairseq_memattn.attention.ops.window.naive import seen_from


def spill_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    places: Places,
    log_alpha: Tensor,
    bias: Tensor | None,
    turn: Callable[[Tensor, int], Tensor],
    *,
    kind: str,
    key_padding_mask: Tensor | None = None,
) -> Tensor:
    """Query after query, one softmax each: (B, H, T, D), zeros at padding unless `kind` is "cross".

    log_alpha: (B, H, S, M); bias: (H,), of the slots, or None; kind: "causal", "cross" or "encoder"
    turn: a vector (D,) by a position, from 0
    """
    padding = torch.zeros(k.shape[0], k.shape[2], dtype=torch.bool)
    padding = padding if key_padding_mask is None else key_padding_mask
    out = torch.zeros_like(q)
    for b, h in ((b, h) for b in range(q.shape[0]) for h in range(q.shape[1])):
        real = (~padding[b]).nonzero().flatten().tolist()
        if not real:
            continue
        keys, values, logits = k[b, h, real], v[b, h, real], log_alpha[b, h, real]
        for place, t in enumerate(range(q.shape[2]) if kind == "cross" else real):
            after = len(real) - 1 if kind == "cross" else place
            exact, spilled = _memory(after, len(real), places, kind)
            query = turn(q[b, h, t], place)
            seen = [turn(keys[i], i) @ query * q.shape[3] ** -0.5 for i in exact]
            contents = [values[i] for i in exact]
            for m in range(places.slots):
                part = spilled if kind != "cross" else _part(m, spilled, places.slots)
                if part:
                    phi = logits[part, m].softmax(0)
                    logit = phi @ keys[part] @ q[b, h, t] * q.shape[3] ** -0.5
                    seen.append(logit if bias is None else logit + bias[h])
                    contents.append(phi @ values[part])
            out[b, h, t] = torch.stack(seen).softmax(0) @ torch.stack(contents)
    return out


def _memory(t: int, length: int, places: Places, kind: str) -> tuple[list[int], list[int]]:
    """The exact tokens, and those in the slots, after token t; of encoder attention, around it."""
    first = set(range(min(places.first, length)))
    if kind == "encoder":
        near = set(seen_from(t, length, Window(places.window), False))
        return sorted(first | near), [i for i in range(length) if i not in first]
    exact = {i for i in range(t + 1) if i in first or i > t - places.window}
    return sorted(exact), [i for i in range(t + 1) if i not in exact]


def _part(m: int, spilled: list[int], slots: int) -> list[int]:
    """Which tokens a slot of cross attention holds: their parts are as equal as they can be."""
    length = max(len(spilled), slots)
    return [i for n, i in enumerate(spilled) if m * length <= n * slots < (m + 1) * length]
