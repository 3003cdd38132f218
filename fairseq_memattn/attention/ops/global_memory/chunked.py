"""GMAT: sparse attention of tokens beside a global memory.

Source: Gupta and Berant, "GMAT: Global Memory Augmentation for Transformers", section 2,
equation 3. With X the S tokens and X_M the M memory tokens, each under one joint softmax:

    X~ = SparseAttention(X, [X; X_M], [B 0]),   X_M~ = Attention(X_M, [X; X_M])

The sparsity B is that of chunks of C tokens, which attend to their own chunk alone (figure 1b), or
of sliding windows. `ops.lsh` has that of hashing. The caller projects queries, keys and values.
"""

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.blocks import blocks, joined
from fairseq_memattn.attention.ops.common import EMPTY, full_precision, omit_padding, scaled
from fairseq_memattn.attention.ops.window import Window, window_attention

# Chunks larger than this never use explicit logits.
TINY_CHUNK = 32


@full_precision
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
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Attention of chunks of C tokens and a memory, in time and memory O(S (C + M)).

    q, k, v: (B, H, S, D), of any length; the last chunk may be shorter
    q_mem, k_mem, v_mem: (B, H, M, D); M may be 0. With a q_mem of (B, H, 0, D) only the tokens'
        attention is computed
    chunk_size: C; with C >= S this is softmax attention over all M + S tokens
    key_padding_mask: (B, S), True at padding, which is hidden from all queries. Chunks are cut by
        columns, so that padding anywhere but on the right moves tokens into other chunks
    scale: of the logits; None is D ** -0.5
    dropout: of the attention weights

    Returns the output of the tokens, (B, H, S, D), zeros at padding, and that of the memory,
    (B, H, M, D), both in q's dtype.

    Raises ValueError for shapes that do not fit together and for a `chunk_size` below 1.
    """
    memory_tokens = {"q_mem": q_mem, "k_mem": k_mem, "v_mem": v_mem}
    check_inputs({"q": q, "k": k, "v": v}, memory_tokens, key_padding_mask)
    check.least(1, chunk_size=chunk_size)
    slots, length = q_mem.shape[2], q.shape[2]
    if chunk_size >= length:
        queries = torch.cat([q_mem, q], dim=2)
        both = attend_to_all(queries, k, v, k_mem, v_mem, key_padding_mask, scale, dropout)
        memory, out = both.split([slots, length], dim=2)
    else:
        real = _real(k, chunk_size, key_padding_mask)
        attend = _attend_apart if _copies_dominate(chunk_size, slots) else _attend_beside
        out = attend((q, k, v), (k_mem, v_mem), real, chunk_size, scale, dropout)
        memory = attend_to_all(q_mem, k, v, k_mem, v_mem, key_padding_mask, scale, dropout)
    return omit_padding(out, key_padding_mask), memory


@full_precision
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
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Attention of windows around tokens and a memory, in time and memory O(S (n + M)).

    window: `Window(2 * w + 1)` for the w tokens on either side. Padding is not counted and may be
        anywhere

    The other arguments, results and errors are those of `global_memory_attention`.
    """
    memory_tokens = {"q_mem": q_mem, "k_mem": k_mem, "v_mem": v_mem}
    check_inputs({"q": q, "k": k, "v": v}, memory_tokens, key_padding_mask)
    out = window_attention(
        *(q, k, v, window),
        causal=False,
        key_padding_mask=key_padding_mask,
        scale=scale,
        memory=(k_mem, v_mem),
        dropout=dropout,
    )
    memory = attend_to_all(q_mem, k, v, k_mem, v_mem, key_padding_mask, scale, dropout)
    return out, memory


def attend_to_all(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_mem: Tensor,
    v_mem: Tensor,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention of queries to the memory and to all tokens: for X_M, equation 3 on the right.

    q: (B, H, T, D); T may be 0

    Returns (B, H, T, D).
    """
    if q.shape[2] == 0:
        return q
    seen = None
    if key_padding_mask is not None:
        seen = _seen_with_memory(~key_padding_mask[:, None, None], k_mem.shape[2])
    return scaled_dot_product_attention(
        q,
        torch.cat([k_mem, k], dim=2),
        torch.cat([v_mem, v], dim=2),
        attn_mask=seen,
        dropout_p=dropout,
        scale=scale,
    )


def check_inputs(
    tokens: dict[str, Tensor], memory: dict[str, Tensor], key_padding_mask: Tensor | None
) -> None:
    """Raises ValueError if the tokens (B, H, S, D) and the memory (B, H, M, D) do not fit.

    tokens, memory: tensors by the names of the caller's arguments, queries first
    """
    check.tensors(**tokens, **memory)
    check.same_dtype(**tokens, **memory)
    first, q = next(iter(tokens.items()))
    check.axes(first, q, "B", "H", "S", "D")
    batch, heads, length, width = q.shape
    check.mask("key_padding_mask", key_padding_mask, (batch, length))
    for name, x in memory.items():
        check.shape(name, x, (batch, heads, "M", width))
    _check_alike(tokens)
    of_memory, q_mem = next(iter(memory.items()))
    _check_alike({k: x for k, x in memory.items() if k != of_memory or q_mem.shape[2]})


def _check_alike(tensors: dict[str, Tensor]) -> None:
    first, *_ = tensors.values()
    for name, x in tensors.items():
        check.shape(name, x, first.shape)


def _copies_dominate(chunk: int, slots: int) -> bool:
    """Whether copying the memory for each chunk takes longer than computing explicit logits."""
    return chunk <= TINY_CHUNK and slots >= 2 * chunk


def _real(k: Tensor, chunk: int, key_padding_mask: Tensor | None) -> Tensor | None:
    """(B, L, 1, 1, C): which keys of each chunk are tokens; None if all of them are."""
    if key_padding_mask is not None:
        return blocks(~key_padding_mask[:, None, :, None], chunk).transpose(3, 4)
    if k.shape[2] % chunk == 0:
        return None
    ones = torch.ones(k.shape[0], 1, k.shape[2], 1, dtype=torch.bool, device=k.device)
    return blocks(ones, chunk).transpose(3, 4)


def _attend_beside(
    tokens: tuple[Tensor, ...],
    memory: tuple[Tensor, ...],
    real: Tensor | None,
    chunk: int,
    scale: float | None,
    dropout: float,
) -> Tensor:
    """Chunks as a batch, each with a copy of the memory, so that no logits are kept.

    tokens: q, k, v; memory: k, v
    """
    queries, *own = (blocks(x, chunk) for x in tokens)
    count = queries.shape[1]
    keys, values = (
        torch.cat([held.unsqueeze(1).expand(-1, count, -1, -1, -1), x], dim=3).flatten(0, 1)
        for held, x in zip(memory, own, strict=True)
    )
    seen = None if real is None else _seen_with_memory(real, memory[0].shape[2]).flatten(0, 1)
    out = scaled_dot_product_attention(
        queries.flatten(0, 1), keys, values, attn_mask=seen, dropout_p=dropout, scale=scale
    )
    return joined(out.unflatten(0, (-1, count)), tokens[0].shape[2])


def _attend_apart(
    tokens: tuple[Tensor, ...],
    memory: tuple[Tensor, ...],
    real: Tensor | None,
    chunk: int,
    scale: float | None,
    dropout: float,
) -> Tensor:
    """Explicit logits; one product gives those with the memory for all chunks. As above."""
    q, *others = tokens
    queries = scaled(q, scale)
    keys, values, k_mem, v_mem = (x.to(queries.dtype) for x in (*others, *memory))
    queries, keys, values = (blocks(x, chunk) for x in (queries, keys, values))
    of_own = queries @ keys.transpose(3, 4)
    if real is not None:
        of_own = of_own.masked_fill(~real, EMPTY)
    of_memory = torch.einsum("blhcd,bhmd->blhcm", queries, k_mem)
    weights = drop(torch.cat([of_memory, of_own], dim=4).softmax(dim=4), dropout)
    of_memory, of_own = weights.split([k_mem.shape[2], chunk], dim=4)
    out: Tensor = torch.einsum("blhcm,bhmd->blhcd", of_memory, v_mem) + of_own @ values
    return joined(out, q.shape[2]).to(q.dtype)


def _seen_with_memory(real: Tensor, slots: int) -> Tensor:
    """A mask over keys (..., S) as a mask over memory and keys (..., M + S)."""
    seen = torch.cat([real.new_ones(*real.shape[:-1], slots), real], dim=-1)
    # Without memory, a row of padding alone sees its padding: a softmax needs at least one key.
    return seen | ~seen.any(dim=-1, keepdim=True)
