"""The sequence selector, and cross attention over what it selects.

Source: Al Adel and Burtsev, "Memory transformer with hierarchical attention for long document
processing" (T5Mem), sections III-B and III-C, equations 3 to 5. Every target token t weighs the K
encoded sequences by their memory slots, and attends to its own mixture of them:

    S = softmax(Query Key^T),   Z_t = sum_i S[t, i] Sent_i
    out_t = Attention(q_t, Z_t W^K, Z_t W^V)

Keys and values are linear in Z, so that the mixture, T times as large as the source, is not built:

    logit[t, l] = sum_i S[t, i] (q_t . K_i[l]),   out_t = sum_i S[t, i] sum_l p[t, l] V_i[l]

where K_i = Sent_i W^K and V_i = Sent_i W^V do not depend on t and are computed once per source.
The paper does not mention padding. The choice here: padding adds nothing to the mixture at its
position, and each position is weighted by the share of the selection that has a token there, the
sum of S[t, i] over the sequences i that reach position l. The logarithm of the share is added to
logit[t, l]. Without it, a short sequence with nearly all of the selection would compete with the
positions beyond its end, whose logits are near 0. With it, a selection of one sequence is attention
to that sequence, a position at which all K sequences have padding is hidden, and without padding
the share is 1 and the equations are the paper's.
"""

from types import NoneType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.common import EMPTY, accumulation_dtype, full_precision, scaled


class MixtureState(NamedTuple):
    """The keys and values of K encoded sequences, in float32 (float64 for float64 inputs).

    keys    (B, H, S, K D): at every position the keys of the K sequences, zeros for padding
    values  (B, H, S, K D)
    tokens  (B, K, S): 1 where a sequence has a token, 0 where it has padding
    """

    keys: Tensor
    values: Tensor
    tokens: Tensor

    def reorder(self, new_order: Tensor) -> "MixtureState":
        """The rows new_order (B',) of the batch, which survive a beam step."""
        return MixtureState(*(tensor.index_select(0, new_order) for tensor in self))


class SelectorState(NamedTuple):
    """The slots of K encoded sequences, as `select_sequences` reads them.

    key     (B, K, M E): the M projected memory tokens of each slot, one after the other
    absent  (B, K): True for sequences of padding alone
    """

    key: Tensor
    absent: Tensor

    def reorder(self, new_order: Tensor) -> "SelectorState":
        """The rows new_order (B',) of the batch, which survive a beam step."""
        return SelectorState(*(tensor.index_select(0, new_order) for tensor in self))


@full_precision
def select_sequences(
    query: Tensor,
    key: Tensor,
    absent: Tensor | None = None,
    scale: float = 1.0,
    bias: Tensor | None = None,
) -> Tensor:
    """The weights of the K sequences for every target token: equation 3.

    query: (B, T, M E), the projected target states
    key: (B, K, M E), the M projected memory tokens of each slot, one after the other
    absent: (B, K), True for sequences of padding alone, which get 0
    scale: of the logits; the paper has none
    bias: (B, T, K), added to the logits; the paper has none

    Returns (B, T, K) in float32 (float64 for float64 inputs). The weights of a token sum to 1, or
    are all 0 where no sequence is present.

    Raises ValueError for shapes that do not fit together.
    """
    check.tensors(query=query, key=key)
    check.axes("query", query, "B", "T", "M E")
    check.axes("key", key, "B", "K", "M E")
    check.shape("key", key, (query.shape[0], "K", query.shape[2]))
    check.mask("absent", absent, tuple(key.shape[:2]))
    check.instance("bias", bias, Tensor, NoneType)
    check.devices("key", key.device, absent=absent, bias=bias)
    logits = scaled(query, scale) @ key.to(accumulation_dtype(query)).transpose(1, 2)
    if bias is not None:
        check.shape("bias", bias, logits.shape)
        logits = logits + bias.to(logits.dtype)
    if absent is None:
        return logits.softmax(dim=2)
    unseen = absent.unsqueeze(1)
    return logits.masked_fill(unseen, EMPTY).softmax(dim=2).masked_fill(unseen, 0.0)


@full_precision
def mixture_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    selection: Tensor,
    *,
    key_padding_mask: Tensor | None = None,
    scale: float = 1.0,
    dropout: float = 0.0,
) -> Tensor:
    """Cross attention of every target token over its own mixture of K sequences: equations 4, 5.

    q: (B, H, T, D)
    k, v: (B, K, H, S, D), of every sequence
    selection: (B, T, K), from `select_sequences`
    key_padding_mask: (B, K, S), True at padding
    scale: of the logits; T5 has none
    dropout: of the attention weights

    Returns (B, H, T, D) in q's dtype; zeros where all sequences are absent. Logits and weights are
    kept in float32 (float64 for float64 inputs). More padding on the right, or one more sequence
    of padding alone with a selection of 0, changes nothing.

    Raises ValueError for shapes that do not fit together.
    """
    return mixture_read(q, selection, mixture_write(k, v, key_padding_mask), scale, dropout)


@full_precision
def mixture_write(k: Tensor, v: Tensor, key_padding_mask: Tensor | None = None) -> MixtureState:
    """The keys and values of K sequences as `mixture_read` reads them, computed once per source.

    Shapes and errors as in `mixture_attention`.
    """
    check.tensors(k=k, v=v)
    check.axes("k", k, "B", "K", "H", "S", "D")
    check.shape("v", v, k.shape)
    batch, sequences, _, length, _ = k.shape
    check.same_dtype(k=k, v=v)
    check.mask("key_padding_mask", key_padding_mask, (batch, sequences, length))
    check.devices("k", k.device, key_padding_mask=key_padding_mask)
    keys, values = (_by_position(x, key_padding_mask) for x in (k, v))
    tokens = keys.new_ones(batch, sequences, length)
    if key_padding_mask is not None:
        tokens = tokens.masked_fill(key_padding_mask, 0.0)
    return MixtureState(keys, values, tokens)


@full_precision
def mixture_read(
    q: Tensor, selection: Tensor, state: MixtureState, scale: float = 1.0, dropout: float = 0.0
) -> Tensor:
    """`mixture_attention` over sequences that `mixture_write` has written, for any T.

    Raises ValueError for shapes, or a state, that do not fit.
    """
    _check_read(q, selection, state)
    share = selection.to(state.keys.dtype)[:, None, :, :, None]
    queries = share * scaled(q, scale).unsqueeze(3)
    logits = queries.flatten(3) @ state.keys.transpose(2, 3) + _log_share(selection, state)
    # Where all positions are empty the weights are uniform, over values that are zero.
    weights = logits.softmax(dim=3)
    readings: Tensor = (drop(weights, dropout) @ state.values).unflatten(3, queries.shape[3:])
    return (share * readings).sum(dim=3).to(q.dtype)


def _by_position(x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
    """(B, K, H, S, D) as (B, H, S, K D), zeros for padding."""
    if key_padding_mask is not None:
        x = x.masked_fill(key_padding_mask[:, :, None, :, None], 0.0)
    return x.to(accumulation_dtype(x)).permute(0, 2, 3, 1, 4).flatten(3)


def _log_share(selection: Tensor, state: MixtureState) -> Tensor:
    """(B, 1, T, S): the log share of the selection with a token at a position; `EMPTY` for 0."""
    share = selection.to(state.tokens.dtype) @ state.tokens
    log = share.clamp(min=torch.finfo(share.dtype).tiny).log()
    return log.masked_fill(share == 0, EMPTY).unsqueeze(1)


def _check_read(q: Tensor, selection: Tensor, state: MixtureState) -> None:
    check.tensors(q=q, selection=selection)
    check.axes("q", q, "B", "H", "T", "D")
    check.instance("state", state, MixtureState)
    batch, heads, length, width = q.shape
    check.shape("selection", selection, (batch, length, "sequences"))
    source, sequences = state.keys.shape[2], selection.shape[2]
    keys = (batch, heads, source, sequences * width)
    dtype = accumulation_dtype(q)
    check.state(state, MixtureState, q, dtype, keys, keys, (batch, sequences, source))
