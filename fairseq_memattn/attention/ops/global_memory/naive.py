"""The oracle of GMAT's attention in chunks and windows: slow, and close to the definition.

Loops over queries in float64. For each query there is a list of the tokens that it sees, and
equation 3 is softmax attention over these tokens and the memory.
"""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.abc.naive import read
from fairseq_memattn.attention.ops.window.chunked import Window
from fairseq_memattn.attention.ops.window.naive import seen_from

# (sequence b, head h, query position t, positions of all tokens) -> positions that the query sees.
Seen = Callable[[int, int, int, list[int]], list[int]]


def attention_with_memory(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_mem: Tensor,
    k_mem: Tensor,
    v_mem: Tensor,
    *,
    seen: Seen,
    key_padding_mask: Tensor | None,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    """Equation 3. Shapes as in `fairseq_memattn.attention.global_memory_attention`."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out, out_mem = torch.zeros_like(q), torch.zeros_like(q_mem)
    for b, h in product(range(q.shape[0]), range(q.shape[1])):
        tokens = _real(key_padding_mask, b, q.shape[2])
        for t in tokens:
            where = seen(b, h, t, tokens)
            keys, values = _joined(k, k_mem, b, h, where), _joined(v, v_mem, b, h, where)
            out[b, h, t] = read(q[b, h, t], keys, values, scale)
        keys, values = _joined(k, k_mem, b, h, tokens), _joined(v, v_mem, b, h, tokens)
        for m in range(q_mem.shape[2]):
            out_mem[b, h, m] = read(q_mem[b, h, m], keys, values, scale)
    return out, out_mem


def global_memory_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_mem: Tensor,
    k_mem: Tensor,
    v_mem: Tensor,
    *,
    chunk_size: int,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Chunks: the same function as `fairseq_memattn.attention.global_memory_attention`."""

    def seen(b: int, h: int, t: int, tokens: list[int]) -> list[int]:
        return [i for i in tokens if i // chunk_size == t // chunk_size]

    inputs = [x.double() for x in (q, k, v, q_mem, k_mem, v_mem)]
    return attention_with_memory(*inputs, seen=seen, key_padding_mask=key_padding_mask, scale=scale)


def window_memory_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_mem: Tensor,
    k_mem: Tensor,
    v_mem: Tensor,
    *,
    window: Window,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Windows: the same function as `global_memory.window_memory_attention`."""

    def seen(b: int, h: int, t: int, tokens: list[int]) -> list[int]:
        near = seen_from(tokens.index(t), len(tokens), window, causal=False)
        return [tokens[i] for i in near]

    inputs = [x.double() for x in (q, k, v, q_mem, k_mem, v_mem)]
    return attention_with_memory(*inputs, seen=seen, key_padding_mask=key_padding_mask, scale=scale)


def _real(key_padding_mask: Tensor | None, b: int, length: int) -> list[int]:
    if key_padding_mask is None:
        return list(range(length))
    return [t for t in range(length) if not key_padding_mask[b, t]]


def _joined(tokens: Tensor, memory: Tensor, b: int, h: int, where: list[int]) -> Tensor:
    return torch.cat([tokens[b, h, where], memory[b, h]])
