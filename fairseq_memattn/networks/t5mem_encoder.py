"""T5Mem's encoder: K sequences that exchange information through their memory slots.

Sources: Al Adel and Burtsev, "Memory transformer with hierarchical attention for long document
processing" (T5Mem), sections III-A, IV and V; for `T5ChunkAttention`, the ablation in section 5 of
its study on masked language modelling and question answering. States are (B, K, M + S, E): each of
K sequences has the M memory tokens of its slot in front.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.nn.memory_slots import MemorySlotAttention, SlotPositionBias
from fairseq_memattn.attention.ops import check
from fairseq_memattn.networks.t5 import Encoded, T5Encoder
from fairseq_memattn.networks.t5_layers import (
    Residual,
    T5CrossAttention,
    T5Embedding,
    T5FeedForward,
    T5PositionBias,
    T5SelfAttention,
    T5Sizes,
    masked,
)

QUERIES = ("embedding", "layer")
SEQUENCE_POSITIONS = ("learned", "none")
SELECTOR_BIASES = ("distance", "none")


@dataclass(frozen=True)
class T5MemSizes(T5Sizes):
    """The sizes of an encoder or a decoder of T5Mem, and the design of the model.

    slots: M, memory tokens of a slot
    sequences: the largest K, sequences of an input, the current one included
    separate_slot_output: whether slots have an output projection of their own (2Linear)
    separate_slot_ffn: whether slots have a feed-forward layer of their own (2FFN)
    mem_attention: whether sequences attend to each other's slots; if not, each is encoded alone
    selector: whether the decoder attends to mixtures of the sequences that a selector weighs; if
        not, it attends to the slots alone
    selector_query: "embedding", of the previous token, with one selection for all layers, or
        "layer", the input of each layer's cross attention
    sequence_positions: "learned", a vector that slots get for the distance of their sequence from
        the current one, or "none", the papers'
    selector_bias: "distance", a bias of the selector for each distance, or "none", the papers'
    separator: the symbol between two sentences of a target; None where a target is one sentence

    With neither positions nor bias the order of the sequences has no effect: nothing tells the
    current one from those before it.

    Raises ValueError for a size out of range and for an unknown choice.
    """

    slots: int = 2
    sequences: int = 8
    separate_slot_output: bool = True
    separate_slot_ffn: bool = True
    mem_attention: bool = True
    selector: bool = True
    selector_query: str = QUERIES[0]
    sequence_positions: str = SEQUENCE_POSITIONS[0]
    selector_bias: str = SELECTOR_BIASES[0]
    separator: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check.sizes(slots=self.slots, sequences=self.sequences)
        for name, choices in (
            ("selector_query", QUERIES),
            ("sequence_positions", SEQUENCE_POSITIONS),
            ("selector_bias", SELECTOR_BIASES),
        ):
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(
                    f"`{name}` must be one of {', '.join(choices)}, but is {value!r} instead."
                )


class T5MemPositionBias(SlotPositionBias):
    """The `SlotPositionBias` that all layers of the encoder share."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__(
            sizes.embed_dim,
            sizes.heads,
            buckets=sizes.buckets,
            max_distance=sizes.max_distance,
            scale=sizes.embed_dim**0.5 if sizes.scale_positions else 1.0,
        )
        self.deviation, self.slots = sizes.embed_dim**-0.5 / self.factor, sizes.slots

    def draw(self) -> None:
        nn.init.normal_(self.table, std=self.deviation)

    def forward(self, padding: Tensor) -> Tensor:  # type: ignore[override]
        """padding: (B, K, S). Returns (K, H, M + S, K M + S)."""
        return super().forward(padding.shape[1], self.slots, padding.shape[2])


class T5MemAttention(MemorySlotAttention):
    """`MemorySlotAttention` over sequences that have the memory tokens of their slots in front."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__(
            sizes.embed_dim,
            sizes.heads,
            head_dim=sizes.head_dim,
            separate_output=sizes.separate_slot_output,
            relative_positions=False,
            dropout=sizes.dropout,
        )
        self.slots, self.head_dim = sizes.slots, sizes.head_dim

    def draw(self) -> None:
        inner, size = self.q_proj.weight.shape
        for queries in (self.q_proj, self.slot_q_proj):
            nn.init.normal_(queries.weight, std=(size * self.head_dim) ** -0.5)
        for written in (self.k_proj, self.v_proj):
            nn.init.normal_(written.weight, std=size**-0.5)
        for output in (self.out_proj, self.slot_out_proj):
            if output is not None:
                nn.init.normal_(output.weight, std=inner**-0.5)

    def forward(self, x: Tensor, bias: Tensor, padding: Tensor) -> Tensor:  # type: ignore[override]
        """x: (B, K, M + S, E); bias: (K, H, M + S, K M + S); padding: (B, K, S). As x."""
        return self.attend(x, self.slots, padding, bias)


class T5ChunkPositionBias(nn.Module):
    """T5's biases within each sequence, hiding padding."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__()
        self.biases = T5PositionBias(sizes, bidirectional=True)

    def forward(self, padding: Tensor) -> Tensor:
        """padding: (B, K, S). Returns (B K, H, S, S)."""
        unseen = padding.flatten(0, 1)[:, None, None]
        return masked(self.biases(padding.shape[2]), ~unseen)


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
        """x: (B, K, M + S, E); bias: (B K, H, S, S); padding: (B, K, S). As x."""
        memory, tokens = x[:, :, : self.slots].flatten(0, 1), x[:, :, self.slots :].flatten(0, 1)
        # Of an absent sequence all is visible, because a softmax over nothing would be NaN.
        visible = ~padding | padding.all(dim=2, keepdim=True)
        memory, _ = self.of_slots(memory, None, tokens, visible.flatten(0, 1))
        tokens, _ = self.of_tokens(tokens, bias)
        return torch.cat([memory, tokens], dim=1).view_as(x)


class T5MemFeedForward(nn.Module):
    """T5's feed-forward layer with its norm and residual; slots may have their own."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__()
        self.slots = sizes.slots
        self.of_tokens = Residual(T5FeedForward(sizes), sizes)
        self.of_slots = Residual(T5FeedForward(sizes), sizes) if sizes.separate_slot_ffn else None

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, K, M + S, E). As x."""
        if self.of_slots is None:
            return self.of_tokens(x)
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
        return self.ffn(self.attention(x, bias, padding))


class T5MemEncoder(T5Encoder):
    """T5Mem's encoder of K sequences, each with a slot of M memory tokens in front.

    All slots start as the same M learned vectors (a choice), which differ, because equal vectors
    would stay equal through all layers. The paper has no positions between sequences. Unless
    `sequence_positions` is "none", a learned vector is added for the distance of the sequence from
    the current one: 0 for the current sequence, which is the last, 1 for the one before it.
    Counted backwards, a distance has the same meaning for every K.
    """

    sizes: T5MemSizes

    def __init__(self, sizes: T5MemSizes, embed_tokens: T5Embedding | None = None) -> None:
        super().__init__(sizes, embed_tokens)
        self.slot_tokens = nn.Parameter(torch.empty(sizes.slots, sizes.embed_dim))
        self.distances: nn.Parameter | None = None
        if sizes.sequence_positions == "learned":
            self.distances = nn.Parameter(torch.empty(sizes.sequences, sizes.embed_dim))
        self.draw()

    def draw(self) -> None:
        nn.init.normal_(self.slot_tokens)
        if self.distances is not None:
            nn.init.normal_(self.distances)

    def build_position_bias(self) -> nn.Module:
        kind = T5MemPositionBias if self.sizes.mem_attention else T5ChunkPositionBias
        return kind(self.sizes)

    def build_layer(self) -> nn.Module:
        return T5MemEncoderLayer(self.sizes)

    def forward(
        self,
        tokens: Tensor,
        key_padding_mask: Tensor | None = None,
        *,
        hidden_states: list[Tensor] | None = None,
    ) -> Encoded:
        """tokens: (B, K, S), the current sequence last, with padding on the right

        key_padding_mask: (B, K, S), True at padding; None is found from the padding symbol. A
            sequence of padding alone is absent, and its slot with it, so that K may differ within a
            batch
        hidden_states: a list that gets the states (B, K, M + S, E) of the embeddings and of all
            layers but the last

        Raises ValueError for more than `sequences` sequences.
        """
        padding = tokens.eq(self.sizes.pad) if key_padding_mask is None else key_padding_mask
        slots, count = self.sizes.slots, tokens.shape[1]
        if count > self.sizes.sequences:
            raise ValueError(
                f"`tokens` must have at most `sequences` {self.sizes.sequences} sequences, but has "
                f"{count} instead."
            )
        first: Tensor = self.slot_tokens
        if self.distances is not None:
            first = self.distances[:count].flip(0).unsqueeze(1) + first
        first = first.expand(len(tokens), count, -1, -1)
        x = self.dropout(torch.cat([first, self.embed_tokens(tokens)], dim=2))
        x = self.run(x, hidden_states, self.position_bias(padding), padding)
        return Encoded(x[:, :, slots:], padding, x[:, :, :slots])


def join_sequences(
    current: Tensor,
    context: Tensor | None,
    current_padding: Tensor,
    context_padding: Tensor | None,
    pad: int,
) -> tuple[Tensor, Tensor]:
    """All sequences (B, K, S), the current one last, padded on the right, and True at padding.

    current: (B, S); context: (B, K - 1, S'), both with padding on either side; None is none
    current_padding, context_padding: of their shapes, True at padding
    """
    tokens, padding = _padded_right(current.unsqueeze(1), current_padding.unsqueeze(1))
    if context is None or not context.shape[1] * context.shape[2]:
        return tokens, padding
    assert context_padding is not None
    before, before_padding = _padded_right(context, context_padding)
    longest = max(tokens.shape[2], before.shape[2])
    return (
        torch.cat([_widened(x, longest, pad) for x in (before, tokens)], dim=1),
        torch.cat([_widened(x, longest, True) for x in (before_padding, padding)], dim=1),
    )


def _padded_right(tokens: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
    """tokens (B, K, S) with all padding on the right, and True at padding."""
    on_the_left = padding.long().cumprod(dim=2).sum(dim=2, keepdim=True)
    columns = torch.arange(tokens.shape[2], device=tokens.device)
    moved = (columns + on_the_left) % tokens.shape[2]
    return tokens.gather(2, moved), padding.gather(2, moved)


def _widened(x: Tensor, length: int, value: float) -> Tensor:
    return nn.functional.pad(x, (0, length - x.shape[-1]), value=value)
