"""T5's encoder and decoder, in fairseq's conventions."""

from typing import Any

import torch
from fairseq.models import FairseqEncoder, FairseqIncrementalDecoder
from torch import Tensor, nn

from fairseq_memattn.modules.incremental import IncrementalState, is_identity
from fairseq_memattn.modules.t5_embedding import T5Embedding
from fairseq_memattn.modules.t5_layers import (
    Source,
    T5CrossAttention,
    T5DecoderLayer,
    T5EncoderLayer,
    T5PositionBias,
    T5Sizes,
    norm,
)

EncoderOut = dict[str, list[Tensor]]


class T5Encoder(FairseqEncoder):
    """Layers over one sequence.

    `encoder_out` of what it returns is batch first, (B, S, E), and `encoder_padding_mask` (B, S).
    """

    def __init__(
        self,
        dictionary: Any,
        embed_tokens: T5Embedding,
        sizes: T5Sizes,
        layers: int,
        max_positions: int,
    ) -> None:
        super().__init__(dictionary)
        self.embed_tokens, self.sizes, self.positions = embed_tokens, sizes, max_positions
        self.position_bias = self.build_position_bias()
        self.layers = nn.ModuleList(self.build_layer() for _ in range(layers))
        self.final_norm = norm(sizes.embed_dim)
        self.dropout = nn.Dropout(sizes.dropout)

    def build_position_bias(self) -> nn.Module:
        return T5PositionBias(self.sizes, bidirectional=True)

    def build_layer(self) -> nn.Module:
        return T5EncoderLayer(self.sizes)

    def forward(self, src_tokens: Tensor, src_lengths: Any = None) -> EncoderOut:
        """src_tokens: (B, S), padding on either side: only relative positions count."""
        padding = src_tokens.eq(self.dictionary.pad())
        bias = self.position_bias(padding.shape[1]).masked_fill(padding[:, None, None], -torch.inf)
        x = self.dropout(self.embed_tokens(src_tokens))
        for layer in self.layers:
            x = layer(x, bias)
        return {
            "encoder_out": [self.dropout(self.final_norm(x))],
            "encoder_padding_mask": [padding],
        }

    def reorder_encoder_out(self, encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
        """fairseq's hook: the sources of the hypotheses that are left."""
        states = encoder_out["encoder_out"]
        if is_identity(new_order, len(states[0])):
            return encoder_out
        return {
            name: [tensor.index_select(0, new_order) for tensor in tensors]
            for name, tensors in encoder_out.items()
        }

    def max_positions(self) -> int:
        return self.positions


class T5Decoder(FairseqIncrementalDecoder):
    """Layers over the target; its embeddings are the output projection, too.

    The first column of its input is a start symbol, whichever: T5 starts from a symbol of its own
    (its padding), fairseq from the end of sentence. Here it is always the dictionary's `<s>`,
    whose embedding in an imported model is T5's padding (`models.hf_t5`).
    """

    def __init__(
        self,
        dictionary: Any,
        embed_tokens: T5Embedding,
        sizes: T5Sizes,
        layers: int,
        max_positions: int,
    ) -> None:
        super().__init__(dictionary)
        self.embed_tokens, self.sizes, self.positions = embed_tokens, sizes, max_positions
        self.position_bias = T5PositionBias(sizes, bidirectional=False)
        self.layers = nn.ModuleList(self.build_layer() for _ in range(layers))
        self.final_norm = norm(sizes.embed_dim)
        self.dropout = nn.Dropout(sizes.dropout)
        # fairseq's padding is a symbol that T5 lacks: it is to have no share in a softmax. A
        # finite number, because label smoothing sums all log-probabilities.
        unlikely = torch.zeros(len(dictionary))
        unlikely[dictionary.pad()] = -20
        self.register_buffer("output_bias", unlikely, persistent=False)

    def build_layer(self) -> nn.Module:
        return T5DecoderLayer(self.sizes, T5CrossAttention(self.sizes))

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        incremental_state: IncrementalState | None = None,
        src_lengths: Any = None,
        features_only: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """prev_output_tokens: (B, T), padding on the right; while decoding, all tokens so far.

        Returns logits (B, T, symbols), of the last position alone while decoding.
        """
        x, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        return (x if features_only else self.output_layer(x)), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        incremental_state: IncrementalState | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Features (B, T, E) before the output projection."""
        starts = torch.full_like(prev_output_tokens[:, :1], self.dictionary.bos())
        tokens = torch.cat([starts, prev_output_tokens[:, 1:]], dim=1)
        past = 0 if incremental_state is None else tokens.shape[1] - 1
        x = self.dropout(self.embed_tokens(tokens[:, past:]))
        source, extra = self.source_for(tokens, x, encoder_out, incremental_state)
        bias = self.position_bias(tokens.shape[1] - past, past)
        for layer in self.layers:
            x = layer(x, bias, source, incremental_state)
        return self.dropout(self.final_norm(x)), extra

    def source_for(
        self,
        tokens: Tensor,
        x: Tensor,
        encoder_out: EncoderOut,
        incremental_state: IncrementalState | None,
    ) -> tuple[Any, dict[str, Any]]:
        """What cross attention is given, and what is reported about it.

        tokens: (B, T), while decoding all so far; x: (B, T', E), the last of them, embedded
        """
        states, padding = encoder_out["encoder_out"][0], encoder_out["encoder_padding_mask"][0]
        source = Source(states, ~padding)
        return source, {"attn": source.weights}

    def output_layer(self, features: Tensor) -> Tensor:
        return self.embed_tokens.logits(features, self.output_bias)

    def max_positions(self) -> int:
        return self.positions
