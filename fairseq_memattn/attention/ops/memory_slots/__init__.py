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
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.attention.ops import check
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
    check.mask("key_padding_mask", key_padding_mask, (*q.shape[:2], q.shape[3] - slots))
    queries = scaled(q, scale)
    keys, values = (_slots_and_own(x.to(queries.dtype), slots) for x in (k, v))
    mask = None if bias is None else bias.to(queries.dtype).flatten(0, 1).unsqueeze(0)
    if key_padding_mask is not None:
        mask = _hide(mask, _unseen(key_padding_mask, slots), q.shape[1:3], queries.dtype)
    # The sequences are further heads, so that the bias is the same in all rows.
    out = scaled_dot_product_attention(
        queries.flatten(1, 2), keys, values, attn_mask=mask, dropout_p=dropout, scale=1.0
    )
    out = out.unflatten(1, q.shape[1:3])
    if key_padding_mask is not None:
        out = out.masked_fill(_hidden(key_padding_mask, slots)[:, :, None, :, None], 0.0)
    return out.to(q.dtype)


def _slots_and_own(x: Tensor, slots: int) -> Tensor:
    """(B, K, H, M + S, D) as what each sequence sees (B, K H, K M + S, D): all slots, its own."""
    of_slots = x[:, :, :, :slots].transpose(1, 2).flatten(2, 3).unsqueeze(1)
    seen = torch.cat([of_slots.expand(-1, x.shape[1], -1, -1, -1), x[:, :, :, slots:]], dim=3)
    return seen.flatten(1, 2)


def _hide(
    bias: Tensor | None, unseen: Tensor, heads: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    """The bias (1, K H, ...) of each row with `EMPTY` where keys are hidden from a sequence."""
    unseen = unseen.expand(-1, *heads, -1, -1).flatten(1, 2)
    zero = unseen.new_zeros((), dtype=dtype)
    return (zero if bias is None else bias).masked_fill(unseen, EMPTY)


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
    check.tensors(q=q, k=k, v=v)
    check.same_dtype(q=q, k=k, v=v)
    check.axes("q", q, "B", "K", "H", "slots + length", "D")
    check.shape("k", k, q.shape)
    check.shape("v", v, q.shape)
    _, sequences, heads, length, _ = q.shape
    if not 1 <= slots < length:
        raise ValueError(
            f"`slots` must be between 1 and {length - 1}, as `q` has {length} slot and sequence "
            f"tokens, but is {slots} instead."
        )
    if bias is not None:
        check.shape("bias", bias, (sequences, heads, length, (sequences - 1) * slots + length))
