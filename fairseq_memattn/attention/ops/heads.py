"""Grouped queries: H heads of queries over G heads of keys and values, R = H / G to each.

Source: Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
Checkpoints", 2023. Query heads g R to g R + R - 1 read key head g. No keys are copied: the queries
of a group are more rows of one product.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.attention.ops.blocks import chunked
from fairseq_memattn.attention.ops.common import EMPTY, MemoryState, accumulation_dtype, scaled


def split_heads(x: Tensor, width: int) -> Tensor:
    """(B, T, H X) as (B, H, T, X), where X is `width`."""
    if x.shape[1] == 1:  # a step of decoding, whose layout is the same
        return x.reshape(x.shape[0], -1, 1, width)
    heads: Tensor = x.unflatten(2, (-1, width))
    return heads.transpose(1, 2)


def by_key_head(q: Tensor, heads: int) -> Tensor:
    """(B, H, T, X) as (B, G, R T, X), where G is `heads`: one query head after another."""
    return q if q.shape[1] == heads else q.unflatten(1, (heads, -1)).flatten(2, 3)


def by_query_head(rows: Tensor, heads: int) -> Tensor:
    """(B, G, R T, X) as (B, H, T, X), where H is `heads`: what `by_key_head` has folded."""
    repeats = heads // rows.shape[1]
    return rows if repeats == 1 else rows.unflatten(2, (repeats, -1)).flatten(1, 2)


def to_query_heads(x: Tensor, heads: int) -> Tensor:
    """(B, G, ...) as (B, H, ...), where H is `heads`: a copy of each key head for its queries."""
    repeats = heads // x.shape[1]
    return x if repeats == 1 else x.repeat_interleave(repeats, dim=1)


def chunk_rows(q: Tensor, heads: int, size: int) -> Tensor:
    """(B, H, T, X) as (B, G, L, R C, X), where G is `heads` and C `size`: `chunked` for queries."""
    chunks = chunked(q, size)
    if q.shape[1] > heads:
        chunks = chunks.unflatten(1, (heads, -1)).transpose(2, 3).flatten(3, 4)
    return chunks


def join_rows(rows: Tensor, like: Tensor) -> Tensor:
    """(B, G, L, R C, X) as (B, H, T, X), the axes of `like`: what `chunk_rows` has cut."""
    repeats = like.shape[1] // rows.shape[1]
    if repeats > 1:
        rows = rows.unflatten(3, (repeats, -1)).transpose(2, 3).flatten(1, 2)
    joined: Tensor = rows.flatten(2, 3)
    return joined[:, :, : like.shape[2]]


def grouped_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Tensor,
    dropout: float,
    scale: float | None,
    log_sum: bool = False,
) -> Tensor:
    """Softmax attention (B, H, T, D) of q (B, H, T, D) to k and v (B, G, S, D).

    seen: the mask or bias, (B, 1 or G, 1 or T, S)
    log_sum: returns (B, H, T, D + 1) in the accumulation dtype, the last column of which is the log
        of the sum of the exponentials of the logits
    """
    rows = by_key_head(q, k.shape[1])
    if seen.shape[2] > 1 and rows is not q:
        seen = seen.repeat(1, 1, q.shape[1] // k.shape[1], 1)
    if log_sum:
        logits = scaled(rows, scale) @ k.to(accumulation_dtype(k)).transpose(2, 3)
        logits = logits.masked_fill(~seen, EMPTY)
        weights = functional.dropout(logits.softmax(dim=3), dropout)
        out = torch.cat([weights @ v.to(weights.dtype), logits.logsumexp(3, keepdim=True)], dim=3)
    else:
        out = scaled_dot_product_attention(
            rows, k, v, attn_mask=seen, dropout_p=dropout, scale=scale
        )
    return by_query_head(out, q.shape[1])


Attend = TypeVar("Attend", bound=Callable[..., Any])


def copy_keys(attend: Attend) -> Attend:
    """A causal form for any G from one for G = H, which sees a copy of each key for its queries.

    attend: of q, k, v, log_alpha or phi, the state or None, and anything else
    """

    def attend_to_copies(
        q: Tensor, k: Tensor, v: Tensor, control: Tensor, state: MemoryState | None, *args: Any
    ) -> Any:
        heads, repeats = q.shape[1], q.shape[1] // k.shape[1]
        if repeats == 1:
            return attend(q, k, v, control, state, *args)

        def copied(x: Tensor) -> Tensor:
            return to_query_heads(x, heads)

        if control.shape[1] > 1:
            control = copied(control)
        if state is not None:
            mass = copied(state.log_mass) if control.shape[1] > 1 else state.log_mass
            state = MemoryState(copied(state.keys), copied(state.values), mass)
        out, after, *sums = attend(q, copied(k), copied(v), control, state, *args)
        return out, MemoryState(*(x[:, ::repeats].contiguous() for x in after)), *sums

    return cast(Attend, attend_to_copies)
