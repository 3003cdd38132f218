"""The encoders of T5 and T5Mem in transformers' format.

Sources of T5Mem: Al Adel and Burtsev, "Memory transformer with hierarchical attention for long
document processing" (T5Mem), sections III-A, IV and V; for `T5ChunkAttention`, the ablation in
section 5 of its study on masked language modelling and question answering.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput

from fairseq_memattn.attention.nn.memory_slots import MemorySlotAttention, SlotPositionBias
from fairseq_memattn.transformers.attention_weights import check_attentions
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


@dataclass
class T5MemEncoderOutput(BaseModelOutput):
    """What the decoder reads of the encoder.

    last_hidden_state: (B, S, E), of T5Mem (B, K, S, E)
    attention_mask: (B, S) or (B, K, S), 1 at tokens and 0 at padding
    slots: (B, K, M, E); None without slots
    """

    # transformers' outputs have a default for every field.
    last_hidden_state: Tensor = None  # type: ignore[assignment]
    attention_mask: Tensor = None  # type: ignore[assignment]
    slots: Tensor = None  # type: ignore[assignment]


class T5EncoderLayer(GradientCheckpointingLayer):
    """Self-attention and a feed-forward layer."""

    def __init__(self, config: T5MemConfig, layer: int) -> None:
        super().__init__()
        sizes = config.sizes("encoder")
        self.attention = Residual(config, T5SelfAttention(config, sizes, layer), sizes.embed_dim)
        self.ffn = Residual(config, T5FeedForward(config, sizes), sizes.embed_dim)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """x: (B, S, E); bias: (B, H, S, S)."""
        out: Tensor = self.ffn(self.attention(x, bias))
        return out


class T5Encoder(nn.Module):
    """T5's encoder of one sequence."""

    main_input_name = "input_ids"

    def __init__(self, config: T5MemConfig) -> None:
        super().__init__()
        self.config, sizes = config, config.sizes("encoder")
        symbols = config.source_vocab_size or config.vocab_size
        self.embed_tokens: nn.Module = T5Embedding(config, symbols, sizes.embed_dim)
        self.position_bias = T5PositionBias(config, sizes, bidirectional=True)
        self.layers = nn.ModuleList(T5EncoderLayer(config, n) for n in range(config.encoder_layers))
        self.final_norm = norm(sizes.embed_dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> T5MemEncoderOutput:
        """input_ids: (B, S), padding on either side: all positions are relative

        attention_mask: (B, S), 1 at tokens and 0 at padding; None is found from the padding symbol
        output_attentions: must not be True
        return_dict: of `generate`, which wants what is returned in any case
        """
        check_attentions(self.config, output_attentions)
        if attention_mask is None:
            attention_mask = input_ids.ne(self.config.pad_token_id).long()
        visible = attention_mask.bool()[:, None, None]
        bias = masked(self.position_bias(input_ids.shape[1]), visible)
        states = [self.dropout(self.embed_tokens(input_ids))]
        for layer in self.layers:
            states.append(layer(states[-1], bias))
        states[-1] = self.dropout(self.final_norm(states[-1]))
        return T5MemEncoderOutput(
            last_hidden_state=states[-1],
            hidden_states=tuple(states) if output_hidden_states else None,
            attention_mask=attention_mask,
        )


class T5MemAttention(MemorySlotAttention):
    """`MemorySlotAttention` over sequences that have the memory tokens of their slots in front."""

    def __init__(self, config: T5MemConfig) -> None:
        sizes = config.sizes("encoder")
        super().__init__(
            sizes.embed_dim,
            sizes.heads,
            head_dim=sizes.head_dim,
            separate_output=config.separate_slot_output,
            relative_positions=False,
            dropout=config.dropout,
        )
        self.slots = config.slots

    def forward(self, x: Tensor, bias: Tensor, padding: Tensor) -> Tensor:  # type: ignore[override]
        """x: (B, K, M + S, E); bias: (K, H, M + S, K M + S); padding: (B, K, S). As x."""
        return self.attend(x, self.slots, padding, bias)

    def first_weights(self) -> Iterator[tuple[Tensor, float]]:
        """The weights and the standard deviations that they begin with."""
        inner, size = self.q_proj.weight.shape
        of_queries = (size * inner // self.num_heads) ** -0.5
        yield from ((f.weight, of_queries) for f in (self.q_proj, self.slot_q_proj))
        yield from ((f.weight, size**-0.5) for f in (self.k_proj, self.v_proj))
        outputs = (self.out_proj, self.slot_out_proj)
        yield from ((f.weight, inner**-0.5) for f in outputs if f is not None)


class T5ChunkAttention(nn.Module):
    """Attention of sequences that are encoded alone.

    Tokens have T5's self-attention, and the memory tokens T5's cross attention to the tokens.
    """

    def __init__(self, config: T5MemConfig, layer: int) -> None:
        super().__init__()
        sizes = config.sizes("encoder")
        self.slots = config.slots
        self.of_tokens = T5SelfAttention(config, sizes, layer)
        self.of_slots = T5CrossAttention(config, sizes, sizes.embed_dim, layer)

    def forward(self, x: Tensor, bias: Tensor, padding: Tensor) -> Tensor:
        """x: (B, K, M + S, E); bias: (B K, H, S, S); padding: (B, K, S). As x."""
        memory, tokens = x[:, :, : self.slots].flatten(0, 1), x[:, :, self.slots :].flatten(0, 1)
        visible = ~padding.flatten(0, 1)[:, None, None]
        memory, _ = self.of_slots(memory, tokens, masked(x.new_zeros(()), visible))
        tokens = self.of_tokens(tokens, bias)
        return torch.cat([memory, tokens], dim=1).unflatten(0, x.shape[:2])


class T5ChunkPositionBias(nn.Module):
    """T5's biases within each sequence."""

    def __init__(self, config: T5MemConfig) -> None:
        super().__init__()
        self.biases = T5PositionBias(config, config.sizes("encoder"), bidirectional=True)

    def forward(self, padding: Tensor) -> Tensor:
        """padding: (B, K, S). Returns (B K, H, S, S), hiding padding."""
        return masked(self.biases(padding.shape[2]), ~padding.flatten(0, 1)[:, None, None])


class T5MemPositionBias(SlotPositionBias):
    """The `SlotPositionBias` that all layers of the encoder share."""

    def __init__(self, config: T5MemConfig) -> None:
        sizes = config.sizes("encoder")
        super().__init__(
            sizes.embed_dim,
            sizes.heads,
            buckets=config.position_buckets,
            max_distance=config.max_distance,
            scale=sizes.embed_dim**0.5 if config.scale_positions else 1.0,
        )
        self.deviation, self.slots = sizes.embed_dim**-0.5 / self.factor, config.slots

    def forward(self, padding: Tensor) -> Tensor:  # type: ignore[override]
        """padding: (B, K, S). Returns (K, H, M + S, K M + S)."""
        return super().forward(padding.shape[1], self.slots, padding.shape[2])


class T5MemFeedForward(nn.Module):
    """T5's feed-forward layer with its norm and residual; slots may have their own."""

    def __init__(self, config: T5MemConfig) -> None:
        super().__init__()
        self.slots = config.slots
        self.of_tokens = self._layer(config)
        self.of_slots = self._layer(config) if config.separate_slot_ffn else None

    @staticmethod
    def _layer(config: T5MemConfig) -> Residual:
        sizes = config.sizes("encoder")
        return Residual(config, T5FeedForward(config, sizes), sizes.embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, K, M + S, E). As x."""
        if self.of_slots is None:
            out: Tensor = self.of_tokens(x)
            return out
        memory, tokens = x[:, :, : self.slots], x[:, :, self.slots :]
        return torch.cat([self.of_slots(memory), self.of_tokens(tokens)], dim=2)


class T5MemEncoderLayer(GradientCheckpointingLayer):
    """Attention of slots and tokens, and a feed-forward layer."""

    def __init__(self, config: T5MemConfig, layer: int) -> None:
        super().__init__()
        block = T5MemAttention(config) if config.mem_attention else T5ChunkAttention(config, layer)
        self.attention = Residual(config, block, config.encoder_embed_dim)
        self.ffn = T5MemFeedForward(config)

    def forward(self, x: Tensor, bias: Tensor, padding: Tensor) -> Tensor:
        """x: (B, K, M + S, E); bias: of the attention's position bias; padding: (B, K, S). As x."""
        out: Tensor = self.ffn(self.attention(x, bias, padding))
        return out


class T5MemEncoder(nn.Module):
    """T5Mem's encoder of K sequences, each with a slot of M memory tokens in front.

    All slots start as the same M learned vectors, plus a learned vector for the distance of the
    sequence from the current one, which is the last.
    """

    main_input_name = "input_ids"

    def __init__(self, config: T5MemConfig) -> None:
        super().__init__()
        self.config, size = config, config.encoder_embed_dim
        symbols = config.source_vocab_size or config.vocab_size
        self.embed_tokens: nn.Module = T5Embedding(config, symbols, size)
        self.position_bias = (
            T5MemPositionBias(config) if config.mem_attention else T5ChunkPositionBias(config)
        )
        self.layers = nn.ModuleList(
            T5MemEncoderLayer(config, n) for n in range(config.encoder_layers)
        )
        self.final_norm = norm(size)
        self.dropout = nn.Dropout(config.dropout)
        self.slot_tokens = nn.Parameter(torch.empty(config.slots, size))
        self.distances = nn.Parameter(torch.empty(config.max_sequences, size))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        context_input_ids: Tensor | None = None,
        context_attention_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> T5MemEncoderOutput:
        """input_ids: (B, S), the current sequences, with padding on either side

        context_input_ids: (B, K - 1, S'), the sequences before them, oldest first, with padding on
            either side; a sequence of padding alone is absent, so that K may differ within a batch
        attention_mask, context_attention_mask: of their shapes, 1 at tokens and 0 at padding; None
            is found from the padding symbol
        output_attentions: must not be True
        return_dict: of `generate`, which wants what is returned in any case

        Raises ValueError for more than `max_sequences` sequences.
        """
        check_attentions(self.config, output_attentions)
        tokens, padding = self.sequences(
            (input_ids, attention_mask), (context_input_ids, context_attention_mask)
        )
        slots = self.first_slots(tokens)
        states = [self.dropout(torch.cat([slots, self.embed_tokens(tokens)], dim=2))]
        bias = self.position_bias(padding)
        for layer in self.layers:
            states.append(layer(states[-1], bias, padding))
        states[-1] = self.dropout(self.final_norm(states[-1]))
        return T5MemEncoderOutput(
            last_hidden_state=states[-1][:, :, self.config.slots :],
            hidden_states=tuple(states) if output_hidden_states else None,
            attention_mask=(~padding).long(),
            slots=states[-1][:, :, : self.config.slots],
        )

    def sequences(
        self,
        current: tuple[Tensor, Tensor | None],
        context: tuple[Tensor | None, Tensor | None],
    ) -> tuple[Tensor, Tensor]:
        """All sequences (B, K, S), the current one last, padded on the right; True at padding."""
        tokens, padding = self._padded_right(current[0].unsqueeze(1), _row(current[1]))
        if context[0] is None or not context[0].shape[1] * context[0].shape[2]:
            return tokens, padding
        before, before_padding = self._padded_right(context[0], context[1])
        count = before.shape[1] + 1
        if count > self.config.max_sequences:
            raise ValueError(
                f"`context_input_ids` must have at most {self.config.max_sequences - 1} sequences "
                f"(`max_sequences` less the current one), but has {count - 1}."
            )
        longest = max(tokens.shape[2], before.shape[2])
        pad = self.config.pad_token_id
        return (
            torch.cat([_widened(x, longest, pad) for x in (before, tokens)], dim=1),
            torch.cat([_widened(x, longest, True) for x in (before_padding, padding)], dim=1),
        )

    def _padded_right(self, tokens: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """tokens (B, K, S) with all padding on the right, and True at padding."""
        padding = tokens.eq(self.config.pad_token_id) if mask is None else ~mask.bool()
        on_the_left = padding.long().cumprod(dim=2).sum(dim=2, keepdim=True)
        columns = torch.arange(tokens.shape[2], device=tokens.device)
        moved = (columns + on_the_left) % tokens.shape[2]
        return tokens.gather(2, moved), padding.gather(2, moved)

    def first_slots(self, tokens: Tensor) -> Tensor:
        """The slots (B, K, M, E) that enter the first layer. tokens: (B, K, S)."""
        batch, count, _ = tokens.shape
        slots = self.distances[:count].flip(0).unsqueeze(1) + self.slot_tokens
        return slots.expand(batch, -1, -1, -1)


def _row(mask: Tensor | None) -> Tensor | None:
    """(B, S) as (B, 1, S)."""
    return None if mask is None else mask.unsqueeze(1)


def _widened(x: Tensor, length: int, value: float) -> Tensor:
    return nn.functional.pad(x, (0, length - x.shape[-1]), value=value)
