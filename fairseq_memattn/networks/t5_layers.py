"""T5's layers: RMS norm before each block, no biases, unscaled dot products, ReLU.

Source: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", section 2.1, and the weight initialisation of its authors' code.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, relu, scaled_dot_product_attention

from fairseq_memattn.attention.nn.dropout import AttentionDropout
from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.key_values import KeyValues
from fairseq_memattn.attention.ops.relative_position import (
    check_buckets,
    of_pairs,
    relative_position_bucket,
)


@dataclass(frozen=True)
class T5Sizes:
    """The sizes of an encoder or a decoder. The defaults are the baseline of the T5Mem papers.

    vocab_size: symbols; pad: the padding symbol
    layers: their number
    embed_dim: E; ffn_dim: inner size of the feed-forward layers; heads: H; head_dim: D
    source_dim: E of the encoder that a decoder attends to; None is `embed_dim`
    dropout: of states, attention weights and feed-forward layers alike
    buckets, max_distance: of relative positions
    scale_embedding, scale_positions: whether the embeddings and the position biases are stored
        multiplied by E^-1/2. The function is the same, but optimisers whose steps are not
        proportional to the weights, such as Adam, change it E^1/2 times as fast

    Raises ValueError for a size out of range.
    """

    vocab_size: int = 32128
    layers: int = 2
    embed_dim: int = 512
    ffn_dim: int = 2048
    heads: int = 8
    head_dim: int = 64
    source_dim: int | None = None
    dropout: float = 0.1
    buckets: int = 32
    max_distance: int = 128
    scale_embedding: bool = False
    scale_positions: bool = False
    pad: int = 1

    def __post_init__(self) -> None:
        names = ("vocab_size", "layers", "embed_dim", "ffn_dim", "heads", "head_dim")
        check.sizes(**{name: getattr(self, name) for name in names})
        check.dropout(self.dropout)
        for bidirectional in (True, False):
            check_buckets(
                bidirectional=bidirectional, buckets=self.buckets, max_distance=self.max_distance
            )


class T5Embedding(nn.Embedding):
    """An embedding table, which is also the output projection, with logits multiplied by E^-1/2."""

    def __init__(self, sizes: T5Sizes) -> None:
        super().__init__(sizes.vocab_size, sizes.embed_dim, sizes.pad)
        self.pad = sizes.pad
        self.factor = sizes.embed_dim**0.5 if sizes.scale_embedding else 1.0
        self.draw()

    def draw(self) -> None:
        """Draws the first weights, whose products with `factor` have a standard deviation of 1."""
        nn.init.normal_(self.weight, std=1 / self.factor)
        nn.init.zeros_(self.weight[self.pad])

    def forward(self, tokens: Tensor) -> Tensor:
        """(...) -> (..., E)"""
        x = super().forward(tokens)
        return x if self.factor == 1 else x * self.factor

    def logits(self, states: Tensor) -> Tensor:
        """(..., E) -> (..., symbols)"""
        if self.factor == 1:
            states = states * self.embedding_dim**-0.5
        return linear(states, self.weight, output_bias(states, self.num_embeddings, self.pad))


def output_bias(like: Tensor, symbols: int, pad: int) -> Tensor:
    """(symbols,), added to the logits: T5 never predicts padding.

    The number is finite, because label smoothing sums all log probabilities. like: has its dtype
    """
    bias = like.new_zeros(symbols)
    bias[pad] = -20.0
    return bias


class Projection(nn.Linear):
    """A projection without bias. deviation: of the first weights, which `draw` draws"""

    def __init__(self, inputs: int, outputs: int, deviation: float) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.deviation = deviation
        self.draw()

    def draw(self) -> None:
        nn.init.normal_(self.weight, std=self.deviation)


def norm(size: int) -> nn.RMSNorm:
    """T5's layer norm."""
    return nn.RMSNorm(size, eps=1e-6)


class Residual(nn.Module):
    """x + dropout(block(norm(x))), around every block of T5.

    A block that returns (output, another) makes the residual return (sum, another).
    """

    def __init__(self, block: nn.Module, sizes: T5Sizes) -> None:
        super().__init__()
        self.norm, self.block = norm(sizes.embed_dim), block
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x: Tensor, *inputs: Any) -> Any:
        """x: (..., E); inputs: the block's other arguments. Returns (..., E)."""
        out = self.block(self.norm(x), *inputs)
        if isinstance(out, tuple):
            return finite(x + self.dropout(out[0])), out[1]
        return finite(x + self.dropout(out))


def finite(x: Tensor) -> Tensor:
    """Clamps float16, whose range T5's states exceed; other dtypes are returned as they are."""
    if x.dtype != torch.float16:
        return x
    limit = torch.finfo(x.dtype).max - 1000
    return x.clamp(-limit, limit)


class T5FeedForward(nn.Module):
    """Two projections with ReLU between them."""

    def __init__(self, sizes: T5Sizes) -> None:
        super().__init__()
        self.wi = Projection(sizes.embed_dim, sizes.ffn_dim, sizes.embed_dim**-0.5)
        self.wo = Projection(sizes.ffn_dim, sizes.embed_dim, sizes.ffn_dim**-0.5)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(..., E) -> (..., E)"""
        return self.wo(self.dropout(relu(self.wi(x))))


class T5PositionBias(nn.Module):
    """The relative position biases that all layers of a stack share."""

    def __init__(self, sizes: T5Sizes, *, bidirectional: bool) -> None:
        super().__init__()
        self.bidirectional, self.max_distance = bidirectional, sizes.max_distance
        self.factor = sizes.embed_dim**0.5 if sizes.scale_positions else 1.0
        self.deviation = sizes.embed_dim**-0.5 / self.factor
        self.table = nn.Parameter(torch.empty(sizes.buckets, sizes.heads))
        self.draw()

    def draw(self) -> None:
        nn.init.normal_(self.table, std=self.deviation)

    def forward(self, length: int, past: int = 0) -> Tensor:
        """(1, H, length, past + length): queries are at the last `length` positions.

        Unless `bidirectional`, the keys after a query are hidden.
        """
        distance = torch.arange(1 - past - length, length, device=self.table.device)
        bucket = relative_position_bucket(
            distance,
            bidirectional=self.bidirectional,
            buckets=len(self.table),
            max_distance=self.max_distance,
        )
        bias = self.factor * embedding(bucket, self.table).t().unsqueeze(0)
        if not self.bidirectional:
            bias = masked(bias, distance <= 0)
        return of_pairs(bias, past + length)


def masked(bias: Tensor, visible: Tensor) -> Tensor:
    """The bias, and the smallest number of its dtype where a key is not visible.

    The number is finite, so that a query that sees nothing has no NaN.
    """
    return bias.masked_fill(~visible, torch.finfo(bias.dtype).min)


class T5Projections(AttentionDropout):
    """The four projections of an attention. source_dim: of keys and values; None is `embed_dim`"""

    def __init__(self, sizes: T5Sizes, source_dim: int | None = None) -> None:
        super().__init__()
        inner, source_dim = sizes.heads * sizes.head_dim, source_dim or sizes.embed_dim
        self.num_heads, self.dropout = sizes.heads, sizes.dropout
        self.q_proj = Projection(sizes.embed_dim, inner, (sizes.embed_dim * sizes.head_dim) ** -0.5)
        self.k_proj = Projection(source_dim, inner, source_dim**-0.5)
        self.v_proj = Projection(source_dim, inner, source_dim**-0.5)
        self.out_proj = Projection(inner, sizes.embed_dim, inner**-0.5)

    def keys_and_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        return self.split(self.k_proj(states)), self.split(self.v_proj(states))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """softmax(q k^T + mask) v, projected; a boolean mask is True where keys are visible."""
        if mask.is_floating_point():
            mask = mask.to(q.dtype)
        return self.join(
            scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=self.drop_rate, scale=1.0
            )
        )


class T5SelfAttention(T5Projections):
    """Self-attention with relative positions, in an encoder or a decoder."""

    def forward(
        self, x: Tensor, bias: Tensor, past: KeyValues | None = None
    ) -> tuple[Tensor, KeyValues]:
        """x: (B, T, E); bias: (B or 1, H, T, past + T); past: of the positions before them.

        Returns (B, T, E), and the keys and values of all positions.
        """
        q, (k, v) = self.split(self.q_proj(x)), self.keys_and_values(x)
        kept = KeyValues(k, v) if past is None else past.append(k, v)
        return self.attend(q, kept.keys, kept.values, bias), kept


class T5CrossAttention(T5Projections):
    """Attention to the encoder's states, without positions.

    return_weights: whether to return the attention weights, averaged over the heads
    """

    def __init__(self, sizes: T5Sizes) -> None:
        super().__init__(sizes, sizes.source_dim)
        self.return_weights = False

    def write(self, states: Tensor, visible: Tensor) -> KeyValues:
        """The keys and values of states (B, S, E). visible: (B, S), False at padding."""
        return self.restored(*self.keys_and_values(states), visible)

    def restored(self, keys: Tensor, values: Tensor, visible: Tensor) -> KeyValues:
        """What `write` returned, from its keys and values (B, H, S, D)."""
        return KeyValues(keys, values, visible[:, None, None])

    def forward(
        self,
        x: Tensor,
        memory: KeyValues | None,
        states: Tensor | None = None,
        visible: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """x: (B, T, E); memory: what `write` returned; None if states and visible are given.

        Returns (B, T, E), and the attention weights (B, T, S) or None.
        """
        if memory is None:
            assert states is not None and visible is not None
            memory = self.write(states, visible)
        assert memory.visible is not None
        q, weights = self.split(self.q_proj(x)), None
        if self.return_weights:
            logits = (q @ memory.keys.transpose(2, 3)).masked_fill(~memory.visible, -torch.inf)
            weights = logits.softmax(dim=3, dtype=torch.float).mean(dim=1)
        return self.attend(q, memory.keys, memory.values, memory.visible), weights


class T5EncoderLayer(nn.Module):
    """Self-attention and a feed-forward layer."""

    def __init__(self, sizes: T5Sizes) -> None:
        super().__init__()
        self.attention = Residual(T5SelfAttention(sizes), sizes)
        self.ffn = Residual(T5FeedForward(sizes), sizes)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """x: (B, S, E); bias: (B, H, S, S). Returns (B, S, E)."""
        x, _ = self.attention(x, bias)
        return self.ffn(x)


class LayerState(NamedTuple):
    """What a layer of a decoder keeps from step to step.

    own: the keys and values of the target so far; None before its first token
    memory: what the cross attention's `write` returned; None if it is given the source
    """

    own: KeyValues | None = None
    memory: Any = None

    def reorder(self, new_order: Tensor) -> "LayerState":
        """The state of the hypotheses new_order (B',), indices into the batch."""
        return LayerState(*(None if x is None else x.reorder(new_order) for x in self))


class T5DecoderLayer(nn.Module):
    """Self-attention, cross attention and a feed-forward layer.

    cross_attention: called with (x, memory, *source); returns (B, T, E) and weights or None
    """

    def __init__(self, sizes: T5Sizes, cross_attention: nn.Module) -> None:
        super().__init__()
        self.attention = Residual(T5SelfAttention(sizes), sizes)
        self.cross_attention = Residual(cross_attention, sizes)
        self.ffn = Residual(T5FeedForward(sizes), sizes)

    def forward(
        self, x: Tensor, bias: Tensor, state: LayerState, *source: Any
    ) -> tuple[Tensor, Tensor | None, KeyValues]:
        """x: (B, T, E); bias: (B or 1, H, T, past + T)

        Returns (B, T, E), the weights of the cross attention if it computes them, and the state's
        `own` with T more positions.
        """
        x, own = self.attention(x, bias, state.own)
        x, weights = self.cross_attention(x, state.memory, *source)
        return self.ffn(x), weights, own
