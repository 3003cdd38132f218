"""MemAttention: K sequences are encoded together and exchange information in memory slots.

Source: Al Adel and Burtsev, "Memory transformer with hierarchical attention for long document
processing" (T5Mem), sections III-A and IV, equations 2 and 6 to 14. A slot is M memory tokens in
front of one sequence of S tokens (the paper's c and L). A memory token sees all slots and its own
sequence, and so does a token:

    score = q (x) [all slots; own sequence] + position bias,   out = softmax(score) V

The caller projects queries, keys and values, and the output.
"""

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

from fairseq_memattn.attention.ops.checks import (
    check_axes,
    check_mask,
    check_same_dtype,
    check_shape,
    check_tensors,
)
from fairseq_memattn.attention.ops.common import EMPTY, full_precision, scaled


@full_precision
def mem_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    slots: int,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    scale: float = 1.0,
    dropout: float = 0.0,
) -> Tensor:
    """Self-attention of slots and sequences, in time and memory O(K (M + S) (K M + S)).

    q, k, v: (B, K, H, M + S, D); each sequence has the memory tokens of its slot first
    slots: M, the memory tokens of one slot
    bias: (K, H, M + S, K M + S), added to the logits with all slots and, after them, with the
        own sequence: `slot_position_bias`
    key_padding_mask: (B, K, S), True at padding. A sequence of padding alone is absent, and its
        slot with it: they are hidden from all queries, so that K may differ within a batch.
        Positions count columns, so that padding on the right does not change the distances to the
        slot
    scale: of the logits; T5 has 1
    dropout: of the attention weights

    Returns (B, K, H, M + S, D) in q's dtype, zeros at padding and for absent sequences (a choice;
    no query sees these states). Logits and weights are kept in float32 (float64 for float64
    inputs). For K = 1 this is T5's attention over the slot and its sequence.

    Raises ValueError for shapes that do not fit together.
    """
    _check_inputs(q, k, v, slots, bias)
    check_mask("key_padding_mask", key_padding_mask, (*q.shape[:2], q.shape[3] - slots))
    queries = scaled(q, scale)
    slot_keys, own_keys = _split(k.to(queries.dtype), slots)
    slot_values, own_values = _split(v.to(queries.dtype), slots)

    logits = torch.cat(
        [
            torch.einsum("bkhtd,bhmd->bkhtm", queries, slot_keys),
            queries @ own_keys.transpose(3, 4),
        ],
        dim=4,
    )
    if bias is not None:
        logits = logits + bias.to(logits.dtype)
    if key_padding_mask is not None:
        logits = logits.masked_fill(_unseen(key_padding_mask, slots), EMPTY)
    weights = drop(logits.softmax(dim=4), dropout)
    of_slots, of_own = weights.split([slot_keys.shape[2], own_keys.shape[3]], dim=4)
    out: Tensor = torch.einsum("bkhtm,bhmd->bkhtd", of_slots, slot_values) + of_own @ own_values
    if key_padding_mask is not None:
        out = out.masked_fill(_hidden(key_padding_mask, slots)[:, :, None, :, None], 0.0)
    return out.to(q.dtype)


def _split(x: Tensor, slots: int) -> tuple[Tensor, Tensor]:
    """(B, K, H, M + S, D) as the slots of all sequences (B, H, K M, D), and (B, K, H, S, D)."""
    return x[:, :, :, :slots].transpose(1, 2).flatten(2, 3), x[:, :, :, slots:]


def _hidden(key_padding_mask: Tensor, slots: int) -> Tensor:
    """(B, K, M + S): True at padding and at the slots of absent sequences."""
    absent = key_padding_mask.all(dim=2, keepdim=True)
    return torch.cat([absent.expand(-1, -1, slots), key_padding_mask], dim=2)


def _unseen(key_padding_mask: Tensor, slots: int) -> Tensor:
    """(B, K, 1, 1, K M + S): the keys that are hidden from a sequence."""
    absent = key_padding_mask.all(dim=2).repeat_interleave(slots, dim=1)
    absent = absent.unsqueeze(1).expand(-1, key_padding_mask.shape[1], -1)
    return torch.cat([absent, key_padding_mask], dim=2)[:, :, None, None]


def _check_inputs(q: Tensor, k: Tensor, v: Tensor, slots: int, bias: Tensor | None) -> None:
    check_tensors(q=q, k=k, v=v)
    check_same_dtype(q=q, k=k, v=v)
    check_axes("q", q, "B", "K", "H", "slots + length", "D")
    check_shape("k", k, q.shape)
    check_shape("v", v, q.shape)
    _, sequences, heads, length, _ = q.shape
    if not 1 <= slots < length:
        raise ValueError(
            f"`slots` must be between 1 and {length - 1}, as `q` has {length} slot and sequence "
            f"tokens, but is {slots} instead."
        )
    if bias is not None:
        check_shape("bias", bias, (sequences, heads, length, (sequences - 1) * slots + length))
