"""The decoders of T5 and T5Mem in transformers' format."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer

from fairseq_memattn.transformers.t5mem_blocks import (
    Residual,
    T5CrossAttention,
    T5Embedding,
    T5FeedForward,
    T5PositionBias,
    T5SelfAttention,
    masked,
    norm,
)
from fairseq_memattn.transformers.t5mem_config import T5MemConfig
from fairseq_memattn.transformers.t5mem_encoder import T5MemEncoderOutput


class T5MemDecoderOutput(NamedTuple):
    """hidden_states: (B, T, E) of the embeddings and of each layer, of which the last is normed"""

    hidden_states: tuple[Tensor, ...]


class T5DecoderLayer(GradientCheckpointingLayer):
    """Self-attention, cross attention and a feed-forward layer."""

    def __init__(self, config: T5MemConfig, layer: int) -> None:
        super().__init__()
        sizes = config.sizes("decoder")
        size, source_dim = sizes.embed_dim, config.encoder_embed_dim
        cross_attention = T5CrossAttention(config, sizes, source_dim, layer)
        self.attention = Residual(config, T5SelfAttention(config, sizes, layer), size)
        self.cross_attention = Residual(config, cross_attention, size)
        self.ffn = Residual(config, T5FeedForward(config, sizes), size)

    def forward(
        self,
        x: Tensor,
        bias: Tensor,
        *source: Any,
        past_key_values: EncoderDecoderCache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """x: (B, T, E); bias: (B or 1, H, T, past + T); source: what the cross attention reads.

        Returns (B, T, E), and the weights of a selector, if there is one.
        """
        x = self.attention(x, bias, past_key_values)
        x, weights = self.cross_attention(x, *source, past_key_values)
        return self.ffn(x), weights


class T5Decoder(nn.Module):
    """T5's decoder.

    As in fairseq, the first token is `decoder_start_token_id` whatever it is given as, so that
    fairseq's inputs, which begin with the end of sentence, mean the same here.
    """

    def __init__(self, config: T5MemConfig) -> None:
        super().__init__()
        self.config, sizes = config, config.sizes("decoder")
        self.embed_tokens = T5Embedding(config, config.vocab_size, sizes.embed_dim)
        self.position_bias = T5PositionBias(config, sizes, bidirectional=False)
        self.layers = nn.ModuleList(T5DecoderLayer(config, n) for n in range(config.decoder_layers))
        self.final_norm = norm(sizes.embed_dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        tokens: Tensor,
        encoder_outputs: T5MemEncoderOutput,
        *,
        attention_mask: Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
    ) -> T5MemDecoderOutput:
        """tokens: (B, T), those that the cache does not hold

        attention_mask: (B, past + T), 0 at padding on the left or on the right; None is all 1
        """
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        if past == 0:
            tokens = self._started(tokens, attention_mask)
        states = [self.dropout(self.embed_tokens(tokens))]
        source = self.source(encoder_outputs)
        bias = self._bias(tokens.shape[1], past, attention_mask)
        for layer in self.layers:
            x, _ = layer(states[-1], bias, *source, past_key_values=past_key_values)
            states.append(x)
        states[-1] = self.dropout(self.final_norm(states[-1]))
        return T5MemDecoderOutput(tuple(states))

    def source(self, encoder_outputs: T5MemEncoderOutput) -> tuple[Any, ...]:
        """What the layers' cross attention reads."""
        states, visible = encoder_outputs.last_hidden_state, encoder_outputs.attention_mask
        return states, masked(states.new_zeros(()), visible.bool()[:, None, None])

    def _started(self, tokens: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The tokens, with the start token as the first one that is not padding."""
        visible = torch.ones_like(tokens) if attention_mask is None else attention_mask.long()
        first = visible.cumsum(dim=1).eq(1) & visible.eq(1)
        return tokens.masked_fill(first, self.config.decoder_start_token_id)

    def _bias(self, length: int, past: int, attention_mask: Tensor | None) -> Tensor:
        """(B or 1, H, length, past + length), hiding later tokens and padding."""
        bias: Tensor = self.position_bias(length, past)
        visible = torch.ones(bias.shape[2:], dtype=torch.bool, device=bias.device).tril(past)
        if attention_mask is not None:
            visible = visible & attention_mask.bool()[:, None, None]
        return masked(bias, visible)
