"""Softmax attention with the interface of `attention.nn.ABCAttention`."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fairseq_memattn.attention.ops.key_values import KeyValues


class SoftmaxAttention(nn.Module):
    """Multi-head attention to all tokens: E = embed_dim, H = num_heads.

    source_dim: the size of the source's representations, for cross attention
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        causal: bool,
        source_dim: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads, self.causal, self.dropout = num_heads, causal, dropout
        source_dim = source_dim or embed_dim
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(size, embed_dim) for size in (embed_dim, source_dim, source_dim, embed_dim)
        )

    def forward(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """x: (B, T, E); source: (B, S, source_dim), x if None; mask: (B, S). (B, T, E)."""
        memory = self.write(x if source is None else source, key_padding_mask)
        return self._attend(x, memory, self.causal)

    def step(
        self, x: Tensor, state: KeyValues | None, *, key_padding_mask: Tensor | None = None
    ) -> tuple[Tensor, KeyValues]:
        """Continues causal attention with T positions: (B, T, E) and the keys and values so far."""
        new = self.write(x, key_padding_mask)
        before = 0 if state is None else state.keys.shape[2]
        state = new if state is None else _joined(state, new)
        causal = x.shape[1] > 1 or state.visible is not None
        return self._attend(x, state, causal, before), state

    def write(self, source: Tensor, key_padding_mask: Tensor | None = None) -> KeyValues:
        """The keys and values of a source, for `read`."""
        visible = None if key_padding_mask is None else ~key_padding_mask[:, None, None]
        return KeyValues(
            self._split(self.k_proj(source)), self._split(self.v_proj(source)), visible
        )

    def read(self, x: Tensor, memory: KeyValues) -> Tensor:
        """Attention of x (B, T, E) to a source that `write` returned."""
        return self._attend(x, memory, causal=False)

    def _attend(self, x: Tensor, source: KeyValues, causal: bool, before: int = 0) -> Tensor:
        q = self._split(self.q_proj(x))
        mask = source.visible
        if causal and (mask is not None or before):
            past = q.new_ones(x.shape[1], source.keys.shape[2]).bool().tril(diagonal=before)
            if mask is None:
                mask = past
            else:
                mask = mask & past
                # A row of padding alone, which would be NaN, sees its own position.
                mask = mask | (~mask.any(dim=3, keepdim=True) & past.triu(diagonal=before))
        out = functional.scaled_dot_product_attention(
            *(q, source.keys, source.values, mask),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=causal and mask is None,
        )
        joined: Tensor = self.out_proj(out.transpose(1, 2).flatten(2))
        return joined

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.num_heads, -1)).transpose(1, 2)


def _joined(old: KeyValues, new: KeyValues) -> KeyValues:
    joined = old.append(new.keys, new.values)
    if old.visible is None and new.visible is None:
        return joined
    masks = [
        x.keys.new_ones(x.keys.shape[0], 1, 1, x.keys.shape[2]).bool()
        if x.visible is None
        else x.visible
        for x in (old, new)
    ]
    return joined._replace(visible=torch.cat(masks, dim=3))
