"""T5Mem's encoder layer: MemAttention or its stand-in, and one or two feed-forward layers.

Sources: Al Adel and Burtsev, "Memory transformer with hierarchical attention for long document
processing" (T5Mem), sections III-A, IV and V; for `T5ChunkAttention` the ablation in section 5 of
the study of it on masked language modelling and question answering. States are
(B, K, M + S, E) here: in each of K sequences the M memory tokens of its slot first.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.ops.memory_slots.attention import mem_attention
from fairseq_memattn.attention.ops.relative_position import slot_position_bias
from fairseq_memattn.modules.t5_layers import (
    Residual,
    Source,
    T5CrossAttention,
    T5FeedForward,
    T5PositionBias,
    T5Projections,
    T5SelfAttention,
    T5Sizes,
    linear,
)


@dataclass(frozen=True)
class T5MemSizes(T5Sizes):
    """The sizes of a stack of T5Mem, and its design.

    slots: M, memory tokens of a slot; sequences: the largest K
    linears: 2 gives slots an output projection of their own (the paper's 2Linear)
    ffns: 2 gives them a feed-forward layer of their own (2FFN)
    mem_attention: whether sequences meet in their slots; without it each is encoded alone
    selector_query: "embedding" of the previous token, or each "layer"'s self-attention output
    """

    slots: int = 2
    sequences: int = 8
    linears: int = 2
    ffns: int = 2
    mem_attention: bool = True
    selector_query: str = "embedding"


class T5MemPositionBias(nn.Module):
    """T5's biases over a slot and its sequence, and one a head for the slots of other sequences."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__()
        self.slots, self.max_distance = sizes.slots, sizes.max_distance
        self.table = nn.Parameter(torch.empty(sizes.buckets + 1, sizes.heads))
        nn.init.normal_(self.table, std=sizes.embed_dim**-0.5)

    def forward(self, padding: Tensor) -> Tensor:
        """padding: (B, K, S). Returns (K, H, M + S, K M + S)."""
        _, sequences, length = padding.shape
        return slot_position_bias(
            self.table, sequences, self.slots, length, max_distance=self.max_distance
        )


class T5MemAttention(T5Projections):
    """MemAttention: queries of slots and tokens are projected apart, keys and values together."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__(sizes, sizes.embed_dim)
        self.slots = sizes.slots
        inner = sizes.heads * sizes.head_dim
        deviation = (sizes.embed_dim * sizes.head_dim) ** -0.5
        self.slot_q_proj = linear(sizes.embed_dim, inner, deviation)
        self.slot_out_proj = (
            linear(inner, sizes.embed_dim, inner**-0.5) if sizes.linears == 2 else None
        )

    def forward(self, x: Tensor, bias: Tensor, padding: Tensor) -> Tensor:
        """x: (B, K, M + S, E); bias: (K, H, M + S, K M + S); padding: (B, K, S)."""
        memory, tokens = self.parts(x)
        q = torch.cat([self.slot_q_proj(memory), self.q_proj(tokens)], dim=2)
        q, k, v = (self.split(part) for part in (q, self.k_proj(x), self.v_proj(x)))
        out = mem_attention(
            q, k, v, slots=self.slots, bias=bias, key_padding_mask=padding, dropout=self.dropout
        )
        if self.slot_out_proj is None:
            return self.joined(out)
        memory, tokens = self.parts(out.transpose(2, 3).flatten(3))
        return torch.cat([self.slot_out_proj(memory), self.out_proj(tokens)], dim=2)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, :, : self.slots], x[:, :, self.slots :]


class T5ChunkPositionBias(nn.Module):
    """T5's biases within each sequence, minus infinity at what its tokens do not see."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__()
        self.biases = T5PositionBias(sizes, bidirectional=True)

    def forward(self, padding: Tensor) -> Tensor:
        """padding: (B, K, S). Returns (B, K, H, S, S)."""
        unseen = ~visible(padding)[:, :, None, None]
        return self.biases(padding.shape[2]).masked_fill(unseen, -torch.inf)


class T5ChunkAttention(nn.Module):
    """In MemAttention's place where sequences do not meet (T5MemWs.WMA).

    The study says that T5's cross attention stands between slots and chunks. The choice here:
    tokens have T5's self-attention over their chunk, and the slot reads the same states by T5's
    cross attention, which has no positions.
    """

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__()
        self.slots = sizes.slots
        self.of_tokens, self.of_slots = T5SelfAttention(sizes), T5CrossAttention(sizes)

    def forward(self, x: Tensor, bias: Tensor, padding: Tensor) -> Tensor:
        """x: (B, K, M + S, E); bias: (B, K, H, S, S); padding: (B, K, S)."""
        memory, tokens = x[:, :, : self.slots].flatten(0, 1), x[:, :, self.slots :].flatten(0, 1)
        source = Source(tokens, visible(padding).flatten(0, 1))
        out = [self.of_slots(memory, source), self.of_tokens(tokens, bias.flatten(0, 1))]
        return torch.cat(out, dim=1).unflatten(0, x.shape[:2])


def visible(padding: Tensor) -> Tensor:
    """Tokens that are seen; all of an absent sequence, where a softmax over none would be NaN.

    padding: (B, K, S)
    """
    return ~padding | padding.all(dim=2, keepdim=True)


class T5MemFeedForward(nn.Module):
    """T5's feed-forward layer, norm and residual included: one for all, or slots have their own."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__()
        self.slots = sizes.slots
        self.of_tokens = Residual(T5FeedForward(sizes), sizes)
        self.of_slots = Residual(T5FeedForward(sizes), sizes) if sizes.ffns == 2 else None

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, K, M + S, E)."""
        if self.of_slots is None:
            out: Tensor = self.of_tokens(x)
            return out
        memory, tokens = x[:, :, : self.slots], x[:, :, self.slots :]
        return torch.cat([self.of_slots(memory), self.of_tokens(tokens)], dim=2)


class T5MemEncoderLayer(nn.Module):
    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__()
        block = T5MemAttention(sizes) if sizes.mem_attention else T5ChunkAttention(sizes)
        self.attention = Residual(block, sizes)
        self.ffn = T5MemFeedForward(sizes)

    def forward(self, x: Tensor, bias: Tensor, padding: Tensor) -> Tensor:
        """x: (B, K, M + S, E); bias: as its attention takes it; padding: (B, K, S)."""
        out: Tensor = self.ffn(self.attention(x, bias, padding))
        return out
