"""GenBERT's decoder, whose weights are its encoder's (GMAT paper, section 3.2 and appendix A.1).

Source: Geva et al., "Injecting Numerical Reasoning Skills into Language Models" (GenBERT). Each
layer of the decoder uses the weights of the encoder's layer of the same number or, where fewer
layers decode (an option of ours), of one of the encoder's last layers: causal self-attention, then
cross attention to the encoder's tokens through the same projections and the same norm (a choice;
the papers say that the weights are tied), then the same feed-forward layer. The decoder does not
use the projections that `--gmat-memory-projections` gives the memory.

The decoder's modules hold no copy of these layers and no reference to them: the encoder passes
itself on in its output.
"""

from typing import Any

import torch
from fairseq.models import FairseqIncrementalDecoder
from fairseq.models.roberta.model import RobertaLMHead
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.attention.ops.key_values import KeyValues
from fairseq_memattn.modules.gmat_attention import GMATAttention
from fairseq_memattn.modules.gmat_encoder import GMATEncoder
from fairseq_memattn.modules.incremental import IncrementalModule, IncrementalState
from fairseq_memattn.modules.layout import batch_first


class GenBertEncoder(GMATEncoder):
    """GMAT's encoder, whose output has one more item: `tied`, the encoder itself."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, list[Any]]:
        return super().forward(*args, **kwargs) | {"tied": [self]}

    def reorder_encoder_out(self, encoder_out: dict[str, list[Any]], new_order: Tensor) -> Any:
        """fairseq's hook for beam search."""
        return super().reorder_encoder_out(encoder_out, new_order) | {"tied": [self]}


class TiedAttention(IncrementalModule):
    """Attention through the projections of an encoder's self-attention. It has no weights."""

    def project(self, tied: GMATAttention, x: Tensor) -> KeyValues:
        """The keys and values of x (B, T, E)."""
        assert tied.k_proj is not None
        return KeyValues(tied.split(tied.k_proj(x)), tied.split(tied.v_proj(x)))

    def attend(
        self, tied: GMATAttention, x: Tensor, source: KeyValues, is_causal: bool = False
    ) -> Tensor:
        """x: (B, T, E), whose T positions are those of the source if it is causal. As x."""
        out = scaled_dot_product_attention(
            tied.split(tied.q_proj(x)),
            source.keys,
            source.values,
            attn_mask=source.visible,
            dropout_p=tied.dropout if self.training else 0.0,
            is_causal=is_causal,
        )
        projected: Tensor = tied.out_proj(tied.joined(out))
        return projected


class TiedCausalAttention(TiedAttention):
    """Attention of target tokens to themselves and to those before."""

    def forward(
        self, tied: GMATAttention, x: Tensor, incremental_state: IncrementalState | None
    ) -> Tensor:
        """x: (B, T, E), while decoding the last token alone."""
        source = self.project(tied, x)
        past = self.saved_state(incremental_state)
        if past is not None:
            source = past.append(source.keys, source.values)
        self.save_state(incremental_state, source)
        return self.attend(tied, x, source, is_causal=x.shape[1] > 1)


class TiedCrossAttention(TiedAttention):
    """Attention of target tokens to the encoder's tokens."""

    def forward(
        self,
        tied: GMATAttention,
        x: Tensor,
        states: Tensor,
        visible: Tensor,
        incremental_state: IncrementalState | None,
    ) -> Tensor:
        """x: (B, T, E); states: (B, S, E), projected once, at the first step; visible: (B, S)."""
        source = self.saved_state(incremental_state)
        if source is None:
            source = self.project(tied, states)._replace(visible=visible[:, None, None])
            self.save_state(incremental_state, source)
        return self.attend(tied, x, source)


class GenBertDecoderLayer(nn.Module):
    """A layer of the decoder, which computes with the weights of an encoder's layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.cross_attention = TiedCausalAttention(), TiedCrossAttention()

    def forward(
        self,
        tied: Any,
        x: Tensor,
        states: Tensor,
        visible: Tensor,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """tied: a `GMATEncoderLayer`; x: (B, T, E)
        states: (B, S, E), the encoder's; visible: (B, S), False at padding

        Returns (B, T, E).
        """
        norm, attention = tied.self_attn_layer_norm, tied.self_attn
        x = residual(tied, norm, x, lambda x: self.attention(attention, x, incremental_state))
        x = residual(
            tied,
            norm,
            x,
            lambda x: self.cross_attention(attention, x, states, visible, incremental_state),
        )
        return residual(tied, tied.final_layer_norm, x, lambda x: feed_forward(tied, x))


def residual(tied: Any, norm: Any, x: Tensor, block: Any) -> Tensor:
    """A block with its residual connection, and its norm where the encoder's layer has it."""
    out: Tensor
    if tied.normalize_before:
        out = x + tied.dropout_module(block(norm(x)))
    else:
        out = norm(x + tied.dropout_module(block(x)))
    return out


def feed_forward(tied: Any, x: Tensor) -> Tensor:
    """The feed-forward layer of an encoder's layer."""
    hidden = tied.activation_dropout_module(tied.activation_fn(tied.fc1(x)))
    out: Tensor = tied.fc2(hidden)
    return out


class GenBertDecoder(FairseqIncrementalDecoder):
    """A decoder with the encoder's embeddings and layers, and BERT's language modelling head.

    embed_tokens: the encoder's table, which is the output projection too
    layers: how many of the encoder's layers decode, the last ones; all of them in GenBERT
    activation: of the head
    max_positions: the longest target

    A learned vector is added to every embedding of the target. It is the difference between BERT's
    segments 1 and 0; segment 0 is part of the position embeddings, as in fairseq's RoBERTa (a
    choice).
    """

    def __init__(
        self,
        dictionary: Any,
        embed_tokens: nn.Embedding,
        *,
        layers: int,
        activation: str,
        max_positions: int,
    ) -> None:
        super().__init__(dictionary)
        self.positions = max_positions
        self.segment = nn.Parameter(0.02 * torch.randn(embed_tokens.embedding_dim))
        self.layers = nn.ModuleList(GenBertDecoderLayer() for _ in range(layers))
        self.lm_head = RobertaLMHead(
            embed_tokens.embedding_dim, len(dictionary), activation, weight=embed_tokens.weight
        )

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Any]],
        incremental_state: IncrementalState | None = None,
        src_lengths: Any = None,
        features_only: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """prev_output_tokens: (B, T), padding on the right; while decoding, all tokens so far
        encoder_out: of `GenBertEncoder`

        Returns logits (B, T, symbols), while decoding those of the last position alone.
        """
        x = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        return (x if features_only else self.output_layer(x)), {"attn": [None]}

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Any]],
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """The states (B, T, E) that enter the head."""
        (encoder,) = encoder_out["tied"]
        embedded = encoder.embed_scale * encoder.embed_tokens(prev_output_tokens) + self.segment
        if encoder.embed_positions is not None:
            embedded = embedded + encoder.embed_positions(prev_output_tokens)
        if incremental_state is not None:
            embedded = embedded[:, -1:]
        x: Tensor = encoder.as_embedded(embedded)
        states = batch_first(encoder_out["encoder_out"][0])
        visible = ~encoder_out["encoder_padding_mask"][0]
        tied_layers = encoder.layers[len(encoder.layers) - len(self.layers) :]
        for layer, tied in zip(self.layers, tied_layers, strict=True):
            x = layer(tied, x, states, visible, incremental_state)
        return x if encoder.layer_norm is None else encoder.layer_norm(x)

    def output_layer(self, features: Tensor) -> Tensor:
        """(B, T, E) to logits (B, T, symbols)."""
        logits: Tensor = self.lm_head(features)
        return logits

    def max_positions(self) -> int:
        """fairseq's hook: the longest target."""
        return self.positions
