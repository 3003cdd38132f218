"""Softmax attention in the place of a control: a slot for every token."""

from types import NoneType

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.attention.controls.base import Control, Tokens, units_of
from fairseq_memattn.attention.controls.options import LARGEST, ControlOptions, Sizes
from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.key_values import KeyValues


class SoftmaxControl(Control):
    """phi_t = e_t: the memory has all tokens and grows, unlike those of registered controls.

    For layers of softmax attention beside others: `ABCAttention(..., control=SoftmaxControl())`.
    """

    uses_heads = False

    def __init__(self) -> None:
        super().__init__(Sizes(embed_dim=1, slots=LARGEST), ControlOptions())

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, *, causal: bool, dropout: float = 0.0
    ) -> Tensor:
        return _attend(q, self.write(k, v, tokens), causal, dropout=dropout)

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, state: KeyValues | None
    ) -> tuple[Tensor, KeyValues]:
        check.instance("state", state, KeyValues, NoneType)
        new = self.write(k, v, tokens)
        before = 0 if state is None else state.keys.shape[2]
        state = new if state is None else state.join(new)
        causal = q.shape[2] > 1 or state.visible is not None
        return _attend(q, state, causal, before), state

    def write(self, k: Tensor, v: Tensor, tokens: Tokens) -> KeyValues:
        mask = tokens.key_padding_mask
        return KeyValues(k, v, None if mask is None else ~mask[:, None, None])

    def read(self, q: Tensor, state: KeyValues) -> Tensor:
        return _attend(q, state, causal=False)

    def vectors(self, k: Tensor, tokens: Tokens) -> Tensor:
        return units_of(k)

    def weights(self, q: Tensor, state: KeyValues) -> Tensor:
        return self.read(q, state._replace(values=units_of(state.keys)))

    def extra_repr(self) -> str:
        return ""


def _attend(
    q: Tensor, source: KeyValues, causal: bool, before: int = 0, dropout: float = 0.0
) -> Tensor:
    """before: the tokens of the source that are older than the first query, in causal attention"""
    mask = source.visible
    if causal and (mask is not None or before):
        past = q.new_ones(q.shape[2], source.keys.shape[2]).bool().tril(diagonal=before)
        if mask is None:
            mask = past
        else:
            mask = mask & past
            # A row of padding alone, which would be NaN, sees its own position.
            mask = mask | (~mask.any(dim=3, keepdim=True) & past.triu(diagonal=before))
    return scaled_dot_product_attention(
        *(q, source.keys, source.values, mask),
        dropout_p=dropout,
        is_causal=causal and mask is None,
        enable_gqa=q.shape[1] != source.keys.shape[1],
    )
