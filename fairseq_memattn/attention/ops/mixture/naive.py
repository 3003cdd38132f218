"""The oracle of the selector and its cross attention: slow, and close to the definition.

Loops over positions in float64, with one function for each equation.
"""

from itertools import product

import torch
from torch import Tensor


def select_sequences(
    query: Tensor,
    key: Tensor,
    absent: Tensor | None = None,
    scale: float = 1.0,
    bias: Tensor | None = None,
) -> Tensor:
    """Equation 3: the same function as `fairseq_memattn.attention.select_sequences`."""
    query, key = query.double(), key.double()
    batch, targets, sequences = query.shape[0], query.shape[1], key.shape[1]
    rows = []
    for b, t in product(range(batch), range(targets)):
        present = torch.ones(sequences, dtype=torch.bool) if absent is None else ~absent[b]
        score = scale * (key[b, present] @ query[b, t])
        if bias is not None:
            score = score + bias[b, t].double()[present]
        nothing = torch.zeros(sequences, dtype=score.dtype)
        rows.append(nothing.masked_scatter(present, score.softmax(dim=0)))
    return torch.stack(rows).view(batch, targets, sequences)


def mixture(states: Tensor, share: Tensor) -> Tensor:
    """Equation 4 for one target token. states: (K, S, E); share: (K,). Returns Z_t, (S, E)."""
    total = sum(share_i * states_i for share_i, states_i in zip(share, states, strict=True))
    assert isinstance(total, Tensor)
    return total


def mixture_attention(
    q: Tensor,
    states: Tensor,
    w_key: Tensor,
    w_value: Tensor,
    selection: Tensor,
    *,
    key_padding_mask: Tensor | None = None,
    scale: float = 1.0,
) -> Tensor:
    """Equations 4 and 5 as written: every mixture Z_t is built and projected.

    The weight of a position is the selection's share of the sequences with a token there.

    q: (B, H, T, D); states: (B, K, S, E), after W^sent; w_key, w_value: (H, E, D);
    selection: (B, T, K); key_padding_mask: (B, K, S). Returns (B, H, T, D).
    """
    q, states, w_key, w_value, selection = (
        tensor.double() for tensor in (q, states, w_key, w_value, selection)
    )
    padding = torch.zeros(states.shape[:3], dtype=torch.bool)
    if key_padding_mask is not None:
        padding = key_padding_mask
    states = states.masked_fill(padding.unsqueeze(3), 0.0)
    rows = []
    for b, h, t in product(*(range(size) for size in q.shape[:3])):
        z = mixture(states[b], selection[b, t])
        share = (selection[b, t].unsqueeze(1) * ~padding[b]).sum(dim=0)
        weights = share * (scale * (z @ w_key[h] @ q[b, h, t])).exp()
        total = weights.sum()
        rows.append((weights / total if total > 0 else weights) @ (z @ w_value[h]))
    return torch.stack(rows).view_as(q)
