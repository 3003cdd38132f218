"""GenBERT's decoder, whose weights are its encoder's (GMAT paper, section 3.2 and appendix A.1).

Source: Geva et al., "Injecting Numerical Reasoning Skills into Language Models" (GenBERT). Every
layer of the decoder is the encoder's layer of the same number, or, where fewer layers decode (our
own option), one of the encoder's last: causal self-attention, then cross attention to the
encoder's tokens through the same projections and the same norm (a choice; the papers say that the
weights are tied), then the same feed-forward layer. What the memory of the encoder has for itself,
`--gmat-memory-projections`, the decoder does not use.
"""

from typing import Any

import torch
from fairseq.models import FairseqIncrementalDecoder
from fairseq.models.roberta.model import RobertaLMHead
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.modules.gmat_attention import GMATAttention
from fairseq_memattn.modules.gmat_encoder import GMATEncoder
from fairseq_memattn.modules.incremental import IncrementalState, Remembering


class TiedAttention(Remembering):
    """Attention through the projections of an encoder's self-attention.

    Its subclasses say what keys and values are of. It has no weights itself.
    """

    def __init__(self, shared: GMATAttention) -> None:
        super().__init__()
        # In a tuple the encoder's modules, and so its weights, stay the encoder's alone.
        self._shared = (shared,)

    @property
    def shared(self) -> GMATAttention:
        return self._shared[0]

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, T, D) of x (T, B, E)."""
        shared = self.shared
        assert shared.k_proj is not None
        return shared.heads(shared.k_proj(x)), shared.heads(shared.v_proj(x))

    def attend(self, x: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
        """x: (T, B, E); visible: a mask of the logits (B or 1, 1, T or 1, keys). As x."""
        q = self.shared.heads(self.shared.q_proj(x))
        dropout = self.shared.dropout if self.training else 0.0
        out = scaled_dot_product_attention(q, k, v, attn_mask=visible, dropout_p=dropout)
        joined: Tensor = self.shared.out_proj(self.shared.joined(out))
        return joined


class TiedCausalAttention(TiedAttention):
    def forward(self, x: Tensor, incremental_state: IncrementalState | None) -> Tensor:
        """x: (T, B, E), while decoding the last token alone."""
        k, v = self.projected(x)
        past = self.remembered(incremental_state)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        self.remember(incremental_state, (k, v))
        queries, keys = len(x), k.shape[2]
        seen = torch.ones(queries, keys, dtype=torch.bool, device=x.device).tril(keys - queries)
        return self.attend(x, k, v, seen)


class TiedCrossAttention(TiedAttention):
    def forward(
        self,
        x: Tensor,
        states: Tensor,
        visible: Tensor,
        incremental_state: IncrementalState | None,
    ) -> Tensor:
        """x: (T, B, E); states: (S, B, E); visible: (B, S). Projected once, at the first step."""
        source = self.remembered(incremental_state)
        if source is None:
            source = (*self.projected(states), visible[:, None, None])
            self.remember(incremental_state, source)
        return self.attend(x, *source)


class GenBertDecoderLayer(nn.Module):
    """An encoder's layer, decoding."""

    def __init__(self, shared: Any) -> None:
        super().__init__()
        self._shared = (shared,)
        self.attention = TiedCausalAttention(shared.self_attn)
        self.cross_attention = TiedCrossAttention(shared.self_attn)

    def forward(
        self,
        x: Tensor,
        states: Tensor,
        visible: Tensor,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """x: (T, B, E); states: (S, B, E), the encoder's; visible: (B, S), False at padding."""
        (layer,) = self._shared
        norm = layer.self_attn_layer_norm
        x = self._around(norm, x, self.attention, incremental_state)
        x = self._around(norm, x, self.cross_attention, states, visible, incremental_state)
        return self._around(layer.final_layer_norm, x, self._fed)

    def _around(self, norm: Any, x: Tensor, block: Any, *inputs: Any) -> Tensor:
        """A block with its residual connection, and its norm where the encoder has it."""
        (layer,) = self._shared
        out: Tensor
        if layer.normalize_before:
            out = x + layer.dropout_module(block(norm(x), *inputs))
        else:
            out = norm(x + layer.dropout_module(block(x, *inputs)))
        return out

    def _fed(self, x: Tensor) -> Tensor:
        (layer,) = self._shared
        hidden = layer.activation_dropout_module(layer.activation_fn(layer.fc1(x)))
        out: Tensor = layer.fc2(hidden)
        return out


class GenBertDecoder(FairseqIncrementalDecoder):
    """The encoder's embeddings and layers, and BERT's language modelling head.

    layers: how many of the encoder's layers decode, the last ones; all of them in GenBERT

    What it reads is told from what the encoder reads by a learned vector that is added to every
    embedding: the difference of BERT's segments 1 and 0 (segment 0 is part of the embeddings of
    positions, as in fairseq's RoBERTa: a choice).
    """

    def __init__(
        self,
        dictionary: Any,
        encoder: GMATEncoder,
        *,
        layers: int,
        activation: str,
        max_positions: int,
    ) -> None:
        super().__init__(dictionary)
        self.positions = max_positions
        self._encoder = (encoder,)
        table = encoder.embed_tokens
        self.segment = nn.Parameter(0.02 * torch.randn(table.embedding_dim))
        last = list(encoder.layers)[-layers:]
        self.layers = nn.ModuleList(GenBertDecoderLayer(layer) for layer in last)
        self.lm_head = RobertaLMHead(
            table.embedding_dim, len(dictionary), activation, weight=table.weight
        )

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]],
        incremental_state: IncrementalState | None = None,
        src_lengths: Any = None,
        features_only: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """prev_output_tokens: (B, T), padding on the right; while decoding, all tokens so far.

        Returns logits (B, T, symbols), of the last position alone while decoding.
        """
        x = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        return (x if features_only else self.output_layer(x)), {"attn": [None]}

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]],
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """Features (B, T, E) before the head."""
        (encoder,) = self._encoder
        embedded = encoder.embed_scale * encoder.embed_tokens(prev_output_tokens) + self.segment
        if encoder.embed_positions is not None:
            embedded = embedded + encoder.embed_positions(prev_output_tokens)
        if incremental_state is not None:
            embedded = embedded[:, -1:]
        x = encoder.as_embedded(embedded).transpose(0, 1)
        states, visible = encoder_out["encoder_out"][0], ~encoder_out["encoder_padding_mask"][0]
        for layer in self.layers:
            x = layer(x, states, visible, incremental_state)
        if encoder.layer_norm is not None:
            x = encoder.layer_norm(x)
        return x.transpose(0, 1)

    def output_layer(self, features: Tensor) -> Tensor:
        logits: Tensor = self.lm_head(features)
        return logits

    def max_positions(self) -> int:
        return self.positions
