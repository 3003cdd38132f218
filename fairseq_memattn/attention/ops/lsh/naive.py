"""The oracle of attention by locality-sensitive hashing: slow, and close to the definition.

Loops over queries in float64.
"""

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.global_memory.naive import attention_with_memory


def lsh_memory_attention(
    qk: Tensor,
    v: Tensor,
    q_mem: Tensor,
    k_mem: Tensor,
    v_mem: Tensor,
    bucket: Tensor,
    *,
    chunk_size: int,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The same function as `lsh_memory_attention`, from the buckets of all rounds.

    bucket: (B, H, rounds, S)
    """

    def seen(b: int, h: int, t: int, tokens: list[int]) -> list[int]:
        met: set[int] = set()
        for of_round in bucket[b, h].tolist():
            met |= set(met_in_a_round(t, tokens, of_round, chunk_size))
        others = sorted(met - {t})
        return others if others or k_mem.shape[2] else [t]

    qk, v, q_mem, k_mem, v_mem = (x.double() for x in (qk, v, q_mem, k_mem, v_mem))
    k, k_mem = (x / x.norm(dim=3, keepdim=True) for x in (qk, k_mem))
    inputs = [qk, k, v, q_mem, k_mem, v_mem]
    return attention_with_memory(*inputs, seen=seen, key_padding_mask=key_padding_mask, scale=scale)


def met_in_a_round(t: int, tokens: list[int], bucket: list[int], chunk_size: int) -> list[int]:
    """Reformer's equations 5 and 6: the tokens of t's bucket in its chunk or the one before."""
    order = sorted(tokens, key=lambda i: (bucket[i], i))
    chunk = {token: place // chunk_size for place, token in enumerate(order)}
    return [i for i in tokens if bucket[i] == bucket[t] and chunk[t] - chunk[i] in (0, 1)]


def rounds_by_equation(
    q: Tensor, k: Tensor, v: Tensor, met: list[list[int]], scale: float
) -> Tensor:
    """Reformer's appendix A for one query: pairs divided by their rounds, rounds combined.

    q: (D,); k, v: (S, D); met: the positions that the query sees in each round

    Returns (D,).
    """
    total, normaliser = torch.zeros_like(q), torch.zeros_like(q[0])
    for seen in met:
        for j in seen:
            times = sum(j in other for other in met)
            weight = (scale * (k[j] @ q)).exp() / times
            total, normaliser = total + weight * v[j], normaliser + weight
    return total / normaliser
