"""Layers of an encoder or a decoder, with attention to bounded memories or to all tokens."""

from typing import Any

from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from fairseq_memattn.attention.controls.softmax import SoftmaxControl
from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.attention.nn.control_pool import LayerControl
from fairseq_memattn.networks.blocks import ResidualLayer, activation
from fairseq_memattn.transformers.cache import MemoryLayer
from fairseq_memattn.transformers.transformer_config import StackConfig


def attention(
    config: StackConfig,
    control: LayerControl | None,
    *,
    causal: bool = False,
    source_dim: int | None = None,
) -> Any:
    """Softmax attention without a control."""
    return ABCAttention(
        *(config.embed_dim, config.heads),
        control=control or SoftmaxControl(),
        causal=causal,
        source_dim=source_dim,
        dropout=config.attention_dropout,
    )


class Layer(GradientCheckpointingLayer, ResidualLayer):
    """What the layers of encoders and decoders share. Names of parameters are fairseq's."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.normalize_before = config.norm_first
        self.activation_fn = activation(config.activation)
        self.dropout_module = nn.Dropout(config.dropout)
        self.activation_dropout_module = nn.Dropout(config.activation_dropout)
        self.self_attn_layer_norm = nn.LayerNorm(config.embed_dim)
        self.fc1 = nn.Linear(config.embed_dim, config.ffn_dim)
        self.fc2 = nn.Linear(config.ffn_dim, config.embed_dim)
        self.final_layer_norm = nn.LayerNorm(config.embed_dim)


class EncoderLayer(Layer):
    """Attention of the tokens to themselves, and a feed-forward network."""

    def __init__(self, config: StackConfig, control: LayerControl | None) -> None:
        super().__init__(config)
        self.self_attn = attention(config, control)

    def forward(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """x: (B, S, E); padding: (B, S)."""
        norm = self.self_attn_layer_norm
        x = self.residual(norm, x, lambda y: self.self_attn(y, key_padding_mask=padding))
        return self.residual(self.final_layer_norm, x, self.feed_forward)


class DecoderLayer(Layer):
    """Causal attention, cross attention if the decoder has a source, and a feed-forward network."""

    def __init__(
        self, config: StackConfig, causal: LayerControl | None, cross: LayerControl | None
    ) -> None:
        super().__init__(config)
        self.self_attn = attention(config, causal, causal=True)
        self.encoder_attn = None
        if config.source_dim:
            self.encoder_attn = attention(config, cross, source_dim=config.source_dim)
            self.encoder_attn_layer_norm = nn.LayerNorm(config.embed_dim)

    def forward(
        self,
        x: Tensor,
        padding: Tensor | None,
        source: Tensor | None,
        source_padding: Tensor | None,
        cache: MemoryLayer | None,
    ) -> Tensor:
        """x: (B, T, E); source: (B, S, source_dim), with the mask of its padding (B, S)."""
        x = self.residual(
            self.self_attn_layer_norm, x, lambda y: self._look_back(y, padding, cache)
        )
        if self.encoder_attn is not None:
            x = self.residual(
                self.encoder_attn_layer_norm,
                x,
                lambda y: self._look_at_source(y, source, source_padding, cache),
            )
        return self.residual(self.final_layer_norm, x, self.feed_forward)

    def _look_back(self, x: Tensor, padding: Tensor | None, cache: MemoryLayer | None) -> Tensor:
        if cache is None:
            return self.self_attn(x, key_padding_mask=padding)
        return cache.step(self.self_attn, x, key_padding_mask=padding)

    def _look_at_source(
        self, x: Tensor, source: Tensor | None, padding: Tensor | None, cache: MemoryLayer | None
    ) -> Tensor:
        assert self.encoder_attn is not None
        if cache is None:
            return self.encoder_attn(x, source, key_padding_mask=padding)
        if cache.memory is None:
            cache.memory = self.encoder_attn.write(source, padding)
        return self.encoder_attn.read(x, cache.memory)
