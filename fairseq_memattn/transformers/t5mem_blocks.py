"""T5's blocks with the caches of transformers: RMS norm before each, no biases, unscaled products.

Source: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", section 2.1. The modules have the names of fairseq's model, so that its weights load
as they are.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from torch.nn.functional import embedding, relu, scaled_dot_product_attention
from transformers import EncoderDecoderCache

from fairseq_memattn.attention.ops.relative_position import relative_position_bucket
from fairseq_memattn.transformers.t5mem_config import T5MemConfig, T5Sizes


class Projection(nn.Linear):
    """A projection without bias. deviation: the standard deviation of the first weights"""

    def __init__(self, inputs: int, outputs: int, deviation: float) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.deviation = deviation


class T5Embedding(nn.Embedding):
    """An embedding table; with `scale_embedding` it is stored multiplied by E^-1/2."""

    def __init__(self, config: T5MemConfig, symbols: int, size: int) -> None:
        super().__init__(symbols, size, config.pad_token_id)
        self.scaled = config.scale_embedding

    def forward(self, tokens: Tensor) -> Tensor:
        """(...) -> (..., E)"""
        x: Tensor = super().forward(tokens)
        return x * self.embedding_dim**0.5 if self.scaled else x


class Residual(nn.Module):
    """x + dropout(block(norm(x))), around every block of T5.

    A block that returns (output, weights) makes the residual return (sum, weights).
    """

    def __init__(self, config: T5MemConfig, block: nn.Module, size: int) -> None:
        super().__init__()
        self.norm, self.block = norm(size), block
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, *inputs: Any) -> Any:
        """x: (..., E); inputs: the block's other arguments. Returns (..., E)."""
        out = self.block(self.norm(x), *inputs)
        if isinstance(out, tuple):
            return finite(x + self.dropout(out[0])), out[1]
        return finite(x + self.dropout(out))


def norm(size: int) -> nn.RMSNorm:
    """T5's layer norm."""
    return nn.RMSNorm(size, eps=1e-6)


def finite(x: Tensor) -> Tensor:
    """Clamps float16, whose range T5's states exceed; other dtypes are returned as they are."""
    if x.dtype != torch.float16:
        return x
    limit = torch.finfo(x.dtype).max - 1000
    return x.clamp(-limit, limit)


class T5FeedForward(nn.Module):
    """Two projections with ReLU between them."""

    def __init__(self, config: T5MemConfig, sizes: T5Sizes) -> None:
        super().__init__()
        self.wi = Projection(sizes.embed_dim, sizes.ffn_dim, sizes.embed_dim**-0.5)
        self.wo = Projection(sizes.ffn_dim, sizes.embed_dim, sizes.ffn_dim**-0.5)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.wo(self.dropout(relu(self.wi(x))))
        return out


class T5PositionBias(nn.Module):
    """The relative position biases that all layers of a stack share."""

    def __init__(self, config: T5MemConfig, sizes: T5Sizes, bidirectional: bool) -> None:
        super().__init__()
        self.bidirectional, self.max_distance = bidirectional, config.max_distance
        self.factor = sizes.embed_dim**0.5 if config.scale_positions else 1.0
        self.deviation = sizes.embed_dim**-0.5 / self.factor
        self.table = nn.Parameter(torch.empty(config.position_buckets, sizes.heads))

    def forward(self, length: int, past: int = 0) -> Tensor:
        """(1, H, length, past + length): queries are at the last `length` positions."""
        keys = torch.arange(past + length, device=self.table.device)
        bucket = relative_position_bucket(
            keys - keys[past:, None],
            bidirectional=self.bidirectional,
            buckets=len(self.table),
            max_distance=self.max_distance,
        )
        return self.factor * embedding(bucket, self.table).permute(2, 0, 1).unsqueeze(0)


class T5Projections(nn.Module):
    """The four projections of an attention.

    source_dim: size of the states that keys and values are made of
    layer: the number of the layer, under which a cache holds its keys and values
    """

    def __init__(self, config: T5MemConfig, sizes: T5Sizes, source_dim: int, layer: int) -> None:
        super().__init__()
        self.config, self.heads, self.layer = config, sizes.heads, layer
        inner = sizes.heads * sizes.head_dim
        of_queries = (sizes.embed_dim * sizes.head_dim) ** -0.5
        self.q_proj = Projection(sizes.embed_dim, inner, of_queries)
        self.k_proj = Projection(source_dim, inner, source_dim**-0.5)
        self.v_proj = Projection(source_dim, inner, source_dim**-0.5)
        self.out_proj = Projection(inner, sizes.embed_dim, inner**-0.5)

    @property
    def dropout(self) -> float:
        """Dropout of the attention weights, which is 0 in evaluation."""
        return float(self.config.dropout) if self.training else 0.0

    def split(self, x: Tensor) -> Tensor:
        """(..., T, H D) as (..., H, T, D)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def joined(self, x: Tensor) -> Tensor:
        """Heads (..., H, T, D), projected to the attention's output (..., T, E)."""
        out: Tensor = self.out_proj(x.transpose(-3, -2).flatten(-2))
        return out

    def attended(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """softmax(q k^T + mask) v, projected to (..., T, E)."""
        if self.config._attn_implementation == "sdpa":
            return self.joined(
                scaled_dot_product_attention(
                    q, k, v, attn_mask=mask, dropout_p=self.dropout, scale=1.0
                )
            )
        exact = torch.promote_types(q.dtype, torch.float32)
        logits = q.to(exact) @ k.to(exact).transpose(-2, -1) + mask.to(exact)
        weights = logits.softmax(dim=-1).to(v.dtype)
        return self.joined(drop(weights, self.dropout) @ v)


class T5SelfAttention(T5Projections):
    """Self-attention with relative positions, in an encoder or a decoder."""

    def __init__(self, config: T5MemConfig, sizes: T5Sizes, layer: int) -> None:
        super().__init__(config, sizes, sizes.embed_dim, layer)

    def forward(
        self, x: Tensor, bias: Tensor, past_key_values: EncoderDecoderCache | None = None
    ) -> Tensor:
        """x: (B, T, E); bias: (B or 1, H, T, past + T), from `masked`."""
        q, k, v = (self.split(f(x)) for f in (self.q_proj, self.k_proj, self.v_proj))
        if past_key_values is not None:
            k, v = past_key_values.self_attention_cache.update(k, v, self.layer)
        return self.attended(q, k, v, bias)


class T5CrossAttention(T5Projections):
    """Attention to the encoder's states, without positions."""

    def forward(
        self,
        x: Tensor,
        states: Tensor,
        mask: Tensor,
        past_key_values: EncoderDecoderCache | None = None,
    ) -> tuple[Tensor, None]:
        """x: (B, T, E); states: (B, S, E); mask: (B, 1, 1, S), from `masked`.

        Returns (B, T, E), and None in place of a selection.
        """
        k, v = written_once(
            past_key_values,
            self.layer,
            lambda: (self.split(self.k_proj(states)), self.split(self.v_proj(states))),
        )
        return self.attended(self.split(self.q_proj(x)), k, v, mask), None


def masked(bias: Tensor, visible: Tensor) -> Tensor:
    """The bias, and the smallest number of its dtype where a key is not visible.

    The number is finite, so that a query that sees nothing has no NaN.
    """
    return torch.where(visible, bias, torch.finfo(bias.dtype).min)


def written_once(
    past_key_values: EncoderDecoderCache | None,
    layer: int,
    write: Callable[[], tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """The keys and values of the encoder's states, which a cache keeps from the first step on."""
    if past_key_values is None:
        return write()
    cache = past_key_values.cross_attention_cache
    if not past_key_values.is_updated.get(layer):
        cache.update(*write(), layer)
        past_key_values.is_updated[layer] = True
    kept: Any = cache.layers[layer]
    return kept.keys, kept.values
