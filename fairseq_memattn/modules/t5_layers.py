"""T5's layers: RMS norm before each block, no biases, unscaled dot products, ReLU.

Source: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", section 2.1, and the weight initialisation of its authors' code. All states are batch
first, (B, T, E), as in `attention`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, relu, scaled_dot_product_attention

from fairseq_memattn.attention.ops.key_values import KeyValues
from fairseq_memattn.attention.ops.relative_position import of_pairs, relative_position_bucket
from fairseq_memattn.modules.incremental import IncrementalModule, IncrementalState


@dataclass(frozen=True)
class T5Sizes:
    """The sizes of a stack of layers.

    embed_dim: E; ffn_dim: inner size of the feed-forward layers; heads: H; head_dim: D
    source_dim: E of the encoder, whose states a decoder attends to
    dropout: of states, attention weights and feed-forward layers alike, as in T5
    buckets, max_distance: of relative positions
    position_scale: of the learned position biases, which are multiplied by it
    """

    embed_dim: int
    ffn_dim: int
    heads: int
    head_dim: int
    source_dim: int
    dropout: float = 0.1
    buckets: int = 32
    max_distance: int = 128
    position_scale: float = 1.0


def linear(inputs: int, outputs: int, deviation: float) -> nn.Linear:
    """A projection without bias. The weights are drawn from a normal distribution around 0."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=deviation)
    return layer


def norm(size: int) -> nn.RMSNorm:
    """T5's layer norm."""
    return nn.RMSNorm(size, eps=1e-6)


class Residual(nn.Module):
    """x + dropout(block(norm(x))), around every block of T5."""

    def __init__(self, block: nn.Module, sizes: T5Sizes) -> None:
        super().__init__()
        self.norm, self.block = norm(sizes.embed_dim), block
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x: Tensor, *inputs: Any) -> Tensor:
        """x: (B, T, E); inputs: the block's other arguments. Returns (B, T, E)."""
        return self.add(x, self.block(self.norm(x), *inputs))

    def add(self, x: Tensor, out: Tensor) -> Tensor:
        """The sum of x and the block's output."""
        return finite(x + self.dropout(out))


class ReportingResidual(Residual):
    """A `Residual` around a block that returns its output and its attention weights."""

    def forward(self, x: Tensor, *inputs: Any) -> tuple[Tensor, Tensor | None]:  # type: ignore[override]
        """As `Residual`. Returns (B, T, E), and the weights, if the block computes them."""
        out, weights = self.block(self.norm(x), *inputs)
        return self.add(x, out), weights


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
        self.wi = linear(sizes.embed_dim, sizes.ffn_dim, sizes.embed_dim**-0.5)
        self.wo = linear(sizes.ffn_dim, sizes.embed_dim, sizes.ffn_dim**-0.5)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.wo(self.dropout(relu(self.wi(x))))
        return out


class ScaledBias(nn.Module):
    """A `table` of biases that are multiplied by a factor in the forward pass.

    The buffer `scale` marks the checkpoint of a model whose factor is not 1. Checkpoints of either
    kind can be loaded.
    """

    factor: float

    def mark(self) -> None:
        """Registers the buffer."""
        if self.factor != 1:
            self.register_buffer("scale", torch.tensor(self.factor))

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """fairseq's hook, called before a checkpoint is loaded."""
        table, scale = f"{name}.table", f"{name}.scale"
        if table not in state_dict or (scale in state_dict) == (self.factor != 1):
            return
        if self.factor != 1:
            state_dict[scale] = torch.tensor(self.factor)
            state_dict[table] = state_dict[table] / self.factor
        else:
            state_dict[table] = state_dict[table] * state_dict.pop(scale)


class T5PositionBias(ScaledBias):
    """The relative position biases that all layers of a stack share."""

    def __init__(self, sizes: T5Sizes, bidirectional: bool) -> None:
        super().__init__()
        self.bidirectional, self.max_distance = bidirectional, sizes.max_distance
        self.factor = sizes.position_scale
        self.table = nn.Parameter(torch.empty(sizes.buckets, sizes.heads))
        nn.init.normal_(self.table, std=sizes.embed_dim**-0.5 / self.factor)
        self.mark()

    def forward(self, length: int, past: int = 0) -> Tensor:
        """(1, H, length, past + length): queries are at the last `length` positions."""
        distance = torch.arange(1 - past - length, length, device=self.table.device)
        bucket = relative_position_bucket(
            distance,
            bidirectional=self.bidirectional,
            buckets=len(self.table),
            max_distance=self.max_distance,
        )
        bias = self.factor * embedding(bucket, self.table).t().unsqueeze(0)
        if not self.bidirectional:
            bias = bias.masked_fill(distance > 0, -torch.inf)
        return of_pairs(bias, past + length)


class T5Projections(IncrementalModule):
    """The four projections of an attention, whose keys and values decoding keeps."""

    def __init__(self, sizes: T5Sizes, source_dim: int) -> None:
        super().__init__()
        inner = sizes.heads * sizes.head_dim
        self.heads, self.rate = sizes.heads, sizes.dropout
        self.q_proj = linear(sizes.embed_dim, inner, (sizes.embed_dim * sizes.head_dim) ** -0.5)
        self.k_proj = linear(source_dim, inner, source_dim**-0.5)
        self.v_proj = linear(source_dim, inner, source_dim**-0.5)
        self.out_proj = linear(inner, sizes.embed_dim, inner**-0.5)

    @property
    def dropout(self) -> float:
        """Dropout of the attention weights, which is 0 in evaluation."""
        return self.rate if self.training else 0.0

    def split(self, x: Tensor) -> Tensor:
        """(..., T, H D) as (..., H, T, D)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def joined(self, x: Tensor) -> Tensor:
        """Heads (B, H, T, D), projected to the attention's output (B, T, E)."""
        out: Tensor = self.out_proj(x.transpose(-3, -2).flatten(-2))
        return out


class T5SelfAttention(T5Projections):
    """Self-attention with relative positions, in an encoder or a decoder."""

    def __init__(self, sizes: T5Sizes) -> None:
        super().__init__(sizes, sizes.embed_dim)

    def forward(
        self, x: Tensor, bias: Tensor, incremental_state: IncrementalState | None = None
    ) -> Tensor:
        """x: (B, T, E); bias: (B or 1, H, T, past + T), -inf for keys that are hidden."""
        q, k, v = (self.split(f(x)) for f in (self.q_proj, self.k_proj, self.v_proj))
        past = self.saved_state(incremental_state)
        source = KeyValues(k, v) if past is None else past.append(k, v)
        self.save_state(incremental_state, source)
        return self.joined(attend(q, source.keys, source.values, bias, self.dropout))


class T5CrossAttention(T5Projections):
    """Attention to the encoder's states, without positions."""

    def __init__(self, sizes: T5Sizes) -> None:
        super().__init__(sizes, sizes.source_dim)
        self.return_weights = False

    def forward(
        self, x: Tensor, source: "Source", incremental_state: IncrementalState | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """x: (B, T, E). The source is projected once, at the first step of decoding.

        Returns (B, T, E) and, with `return_weights`, the attention weights (B, T, S).
        """
        q = self.split(self.q_proj(x))
        written = self.saved_state(incremental_state)
        if written is None:
            k, v = (self.split(f(source.states)) for f in (self.k_proj, self.v_proj))
            written = KeyValues(k, v, source.visible[:, None, None])
            self.save_state(incremental_state, written)
        k, v, visible = written
        weights = mean_weights(q, k, visible) if self.return_weights else None
        return self.joined(attend(q, k, v, visible, self.dropout)), weights

    def make_generation_fast_(self, need_attn: bool = False, **kwargs: Any) -> None:
        """fairseq's hook. need_attn: whether `--print-alignment` is given."""
        self.return_weights = bool(need_attn)


@dataclass(frozen=True)
class Source:
    """What a decoder attends to.

    states: (B, S, E); visible: (B, S), False at padding
    """

    states: Tensor
    visible: Tensor


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float) -> Tensor:
    """softmax(q k^T + mask) v. mask: a float mask is added, a boolean one is True where visible."""
    if mask.is_floating_point():
        mask = mask.to(q.dtype)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=1.0)


def mean_weights(q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
    """The attention weights (B, T, S), averaged over the heads as fairseq reports them."""
    logits = (q @ k.transpose(2, 3)).masked_fill(~visible, -torch.inf)
    return logits.softmax(dim=3, dtype=torch.float).mean(dim=1)


class T5EncoderLayer(nn.Module):
    """Self-attention and a feed-forward layer."""

    def __init__(self, sizes: T5Sizes) -> None:
        super().__init__()
        self.attention = Residual(T5SelfAttention(sizes), sizes)
        self.ffn = Residual(T5FeedForward(sizes), sizes)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """x: (B, S, E); bias: (B, H, S, S)."""
        out: Tensor = self.ffn(self.attention(x, bias))
        return out


class T5DecoderLayer(nn.Module):
    """Self-attention, cross attention and a feed-forward layer.

    cross_attention: called with (x (B, T, E), source, incremental_state); returns (B, T, E) and
        its attention weights or None
    """

    def __init__(self, sizes: T5Sizes, cross_attention: nn.Module) -> None:
        super().__init__()
        self.attention = Residual(T5SelfAttention(sizes), sizes)
        self.cross_attention = ReportingResidual(cross_attention, sizes)
        self.ffn = Residual(T5FeedForward(sizes), sizes)

    def forward(
        self,
        x: Tensor,
        bias: Tensor,
        source: Any,
        incremental_state: IncrementalState | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """x: (B, T, E), of one token where incremental_state holds those before it.

        Returns (B, T, E), and the weights of the cross attention, if it computes them.
        """
        x = self.attention(x, bias, incremental_state)
        x, weights = self.cross_attention(x, source, incremental_state)
        return self.ffn(x), weights
