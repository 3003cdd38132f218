"""The oracle of relative positions and MemAttention: slow, and close to the definition.

Loops over positions in float64, with one function for each equation.
"""

import math
from itertools import product

import torch
from torch import Tensor


def bucket(distance: int, bidirectional: bool, buckets: int, max_distance: int) -> int:
    """T5's bucket of one distance, by logarithms."""
    if bidirectional:
        side, first = buckets // 2, buckets // 2 if distance > 0 else 0
        distance = abs(distance)
    else:
        side, first = buckets, 0
        distance = max(-distance, 0)
    exact = side // 2
    if distance < exact:
        return first + distance
    steps = math.log(distance / exact) / math.log(max_distance / exact) * (side - exact)
    # Rounding can put the logarithm of an exact power just below the whole number.
    return first + min(exact + math.floor(steps + 1e-9), side - 1)


def slot_distance(i: int, query: int, column: int, sequences: int, slots: int) -> int | None:
    """The distance from a query of sequence i to a column of [all slots; own sequence].

    None for the slot of another sequence.
    """
    if column >= sequences * slots:
        return column - sequences * slots + slots - query
    return column % slots - query if column // slots == i else None


def visible(padding: Tensor, i: int, slots: int) -> list[tuple[int, int, int]]:
    """The keys that sequence i sees: the column of the scores, the sequence and the position.

    padding: (K, S)
    """
    count, length = padding.shape
    present = [j for j in range(count) if not padding[j].all()]
    of_slots = [(j * slots + m, j, m) for j in present for m in range(slots)]
    own = [(count * slots + s, i, slots + s) for s in range(length) if not padding[i, s]]
    return of_slots + own


def mem_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    slots: int,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    scale: float = 1.0,
) -> Tensor:
    """Equations 6 to 14: the same function as `memory_slots.mem_attention`."""
    q, k, v = (tensor.double() for tensor in (q, k, v))
    batch, sequences, heads, length, _ = q.shape
    padding = torch.zeros(batch, sequences, length - slots, dtype=torch.bool)
    if key_padding_mask is not None:
        padding = key_padding_mask
    rows = []
    for b, i, h, t in product(range(batch), range(sequences), range(heads), range(length)):
        if padding[b, i].all() or (t >= slots and padding[b, i, t - slots]):
            rows.append(torch.zeros_like(q[b, i, h, t]))
            continue
        columns, of, at = (list(x) for x in zip(*visible(padding[b], i, slots), strict=True))
        score = scale * (k[b, of, h, at] @ q[b, i, h, t])
        if bias is not None:
            score = score + bias[i, h, t, columns]
        rows.append(score.softmax(dim=0) @ v[b, of, h, at])
    return torch.stack(rows).view_as(q)
