"""T5Mem's encoder layer: MemAttention or its replacement, and one or two feed-forward layers.

Sources: Al Adel and Burtsev, "Memory transformer with hierarchical attention for long document
processing" (T5Mem), sections III-A, IV and V; for `T5ChunkAttention`, the ablation in section 5 of
its study on masked language modelling and question answering. States are (B, K, M + S, E): each of
K sequences has the M memory tokens of its slot in front.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.nn.memory_slots import MemorySlotAttention, SlotPositionBias
from fairseq_memattn.modules.t5_layers import (
    Residual,
    ScaledBias,
    Source,
    T5CrossAttention,
    T5FeedForward,
    T5PositionBias,
    T5SelfAttention,
    T5Sizes,
)


@dataclass(frozen=True)
class T5MemSizes(T5Sizes):
    """The sizes of a stack of T5Mem, and its design.

    slots: M, memory tokens of a slot; sequences: the largest K
    linears: 2 gives slots their own output projection (the paper's 2Linear)
    ffns: 2 gives slots their own feed-forward layer (2FFN)
    mem_attention: whether sequences attend to each other's slots; if not, each is encoded alone
    selector_query: "embedding", of the previous token, or "layer", each layer's self-attention
        output
    """

    slots: int = 2
    sequences: int = 8
    linears: int = 2
    ffns: int = 2
    mem_attention: bool = True
    selector_query: str = "embedding"


class T5MemPositionBias(SlotPositionBias, ScaledBias):
    """The `SlotPositionBias` that all layers of the encoder share."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__(
            sizes.embed_dim,
            sizes.heads,
            buckets=sizes.buckets,
            max_distance=sizes.max_distance,
            scale=sizes.position_scale,
        )
        self.slots = sizes.slots
        self.mark()

    def forward(self, padding: Tensor) -> Tensor:  # type: ignore[override]
        """padding: (B, K, S). Returns (K, H, M + S, K M + S)."""
        _, sequences, length = padding.shape
        return super().forward(sequences, self.slots, length)


class T5MemAttention(MemorySlotAttention):
    """`MemorySlotAttention` over sequences that have the memory tokens of their slots in front."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__(
            sizes.embed_dim,
            sizes.heads,
            head_dim=sizes.head_dim,
            separate_output=sizes.linears == 2,
            relative_positions=False,
            dropout=sizes.dropout,
        )
        self.slots = sizes.slots

    def forward(self, x: Tensor, bias: Tensor, padding: Tensor) -> Tensor:  # type: ignore[override]
        """x: (B, K, M + S, E); bias: (K, H, M + S, K M + S); padding: (B, K, S). As x."""
        return self.attend(x, self.slots, padding, bias)


class T5ChunkPositionBias(nn.Module):
    """T5's biases within each sequence, and minus infinity for the keys that are hidden."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__()
        self.biases = T5PositionBias(sizes, bidirectional=True)

    def forward(self, padding: Tensor) -> Tensor:
        """padding: (B, K, S). Returns (B, K, H, S, S)."""
        unseen = ~visible(padding)[:, :, None, None]
        return self.biases(padding.shape[2]).masked_fill(unseen, -torch.inf)


class T5ChunkAttention(nn.Module):
    """The replacement of MemAttention for sequences that are encoded alone (T5MemWs.WMA).

    The study says that T5's cross attention connects slots and chunks. The choice here:
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
        memory, _ = self.of_slots(memory, source)
        tokens = self.of_tokens(tokens, bias.flatten(0, 1))
        return torch.cat([memory, tokens], dim=1).unflatten(0, x.shape[:2])


def visible(padding: Tensor) -> Tensor:
    """True at the tokens that are visible, (B, K, S).

    All tokens of an absent sequence are visible, because a softmax over no keys would be NaN.

    padding: (B, K, S)
    """
    return ~padding | padding.all(dim=2, keepdim=True)


class T5MemFeedForward(nn.Module):
    """T5's feed-forward layer with its norm and residual; slots may have their own."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__()
        self.slots = sizes.slots
        self.of_tokens = Residual(T5FeedForward(sizes), sizes)
        self.of_slots = Residual(T5FeedForward(sizes), sizes) if sizes.ffns == 2 else None

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, K, M + S, E). As x."""
        if self.of_slots is None:
            out: Tensor = self.of_tokens(x)
            return out
        memory, tokens = x[:, :, : self.slots], x[:, :, self.slots :]
        return torch.cat([self.of_slots(memory), self.of_tokens(tokens)], dim=2)


class T5MemEncoderLayer(nn.Module):
    """Attention of slots and tokens, and a feed-forward layer."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__()
        block = T5MemAttention(sizes) if sizes.mem_attention else T5ChunkAttention(sizes)
        self.attention = Residual(block, sizes)
        self.ffn = T5MemFeedForward(sizes)

    def forward(self, x: Tensor, bias: Tensor, padding: Tensor) -> Tensor:
        """x: (B, K, M + S, E); bias: of the attention's position bias; padding: (B, K, S). As x."""
        out: Tensor = self.ffn(self.attention(x, bias, padding))
        return out
