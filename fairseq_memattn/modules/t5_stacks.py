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
    """T5's encoder of one sequence."""

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
        """The biases that all layers share."""
        return T5PositionBias(self.sizes, bidirectional=True)

    def build_layer(self) -> nn.Module:
        """A layer of the encoder."""
        return T5EncoderLayer(self.sizes)

    def forward(self, src_tokens: Tensor, src_lengths: Any = None) -> EncoderOut:
        """src_tokens: (B, S), padding on either side: all positions are relative.

        Returns, batch first, `encoder_out` (B, S, E) and `encoder_padding_mask` (B, S).
        """
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
        """fairseq's hook: the sources of the hypotheses that survive a beam step."""
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
    """T5's decoder, whose embeddings are the output projection too.

    The decoder replaces the first input token, whatever it is, by the dictionary's `<s>`: T5 starts
    from its padding symbol, fairseq from the end of sentence. In an imported model `<s>` has the
    embedding of T5's padding (`models.hf_t5`).
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
        # fairseq's padding is a symbol that T5 lacks, so its probability must be negligible. The
        # bias is finite, because label smoothing sums all log-probabilities.
        unlikely = torch.zeros(len(dictionary))
        unlikely[dictionary.pad()] = -20
        self.register_buffer("output_bias", unlikely, persistent=False)

    def build_layer(self) -> nn.Module:
        """A layer of the decoder."""
        return T5DecoderLayer(self.sizes, T5CrossAttention(self.sizes))

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        incremental_state: IncrementalState | None = None,
        src_lengths: Any = None,
        features_only: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """prev_output_tokens: (B, T), padding on the right; while decoding, all tokens so far

        Returns logits (B, T, symbols), while decoding those of the last position alone, and
        `report`.
        """
        x, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        return (x if features_only else self.output_layer(x)), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        incremental_state: IncrementalState | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """The states (B, T, E) that enter the output projection, and `report`."""
        starts = torch.full_like(prev_output_tokens[:, :1], self.dictionary.bos())
        tokens = torch.cat([starts, prev_output_tokens[:, 1:]], dim=1)
        past = 0 if incremental_state is None else tokens.shape[1] - 1
        x = self.dropout(self.embed_tokens(tokens[:, past:]))
        source = self.source_for(tokens, x, encoder_out, incremental_state)
        bias = self.position_bias(tokens.shape[1] - past, past)
        weights = []
        for layer in self.layers:
            x, of_layer = layer(x, bias, source, incremental_state)
            weights.append(of_layer)
        return self.dropout(self.final_norm(x)), self.report(weights)

    def source_for(
        self,
        tokens: Tensor,
        x: Tensor,
        encoder_out: EncoderOut,
        incremental_state: IncrementalState | None,
    ) -> Any:
        """What the layers' cross attention reads.

        tokens: (B, T), while decoding all tokens so far; x: (B, T', E), the last of them, embedded
        """
        states, padding = encoder_out["encoder_out"][0], encoder_out["encoder_padding_mask"][0]
        return Source(states, ~padding)

    def report(self, weights: list[Tensor | None]) -> dict[str, Any]:
        """What is returned beside the states. weights: of each layer's cross attention."""
        return {"attn": weights[-1:]}

    def output_layer(self, features: Tensor) -> Tensor:
        """(B, T, E) to logits (B, T, symbols)."""
        return self.embed_tokens.logits(features, self.output_bias)

    def max_positions(self) -> int:
        return self.positions
