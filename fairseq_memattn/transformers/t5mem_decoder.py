"""The decoders of T5 and T5Mem in transformers' format.

Source of T5Mem: Al Adel and Burtsev, "Memory transformer with hierarchical attention for long
document processing" (T5Mem), sections III-B and III-C, equations 3 to 5.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer

from fairseq_memattn.attention.ops.mixture.attention import (
    MixtureState,
    mixture_read,
    mixture_write,
    select_sequences,
)
from fairseq_memattn.transformers.recomputation import refuse_cache
from fairseq_memattn.transformers.t5mem_blocks import (
    Projection,
    Residual,
    T5CrossAttention,
    T5Embedding,
    T5FeedForward,
    T5PositionBias,
    T5Projections,
    T5SelfAttention,
    masked,
    norm,
    written_once,
)
from fairseq_memattn.transformers.t5mem_config import T5MemConfig
from fairseq_memattn.transformers.t5mem_encoder import T5MemEncoderOutput


class T5MemDecoderOutput(NamedTuple):
    """What the decoder returns.

    hidden_states: (B, T, E) of the embeddings and of each layer, of which the last is normed
    selection: the selector's weights (B, T, K), one for all layers or one for each layer; none
        without a selector
    """

    hidden_states: tuple[Tensor, ...]
    selection: tuple[Tensor, ...] = ()


class T5DecoderLayer(GradientCheckpointingLayer):
    """Self-attention, cross attention and a feed-forward layer."""

    def __init__(self, config: T5MemConfig, layer: int) -> None:
        super().__init__()
        sizes = config.sizes("decoder")
        size, source_dim = sizes.embed_dim, config.encoder_embed_dim
        kind = T5MemCrossAttention if config.slots and config.selector else T5CrossAttention
        cross_attention = kind(config, sizes, source_dim, layer)
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
        self.embed_tokens: nn.Module = T5Embedding(config, config.vocab_size, sizes.embed_dim)
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
        target_context: Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
    ) -> T5MemDecoderOutput:
        """tokens: (B, T), those that the cache does not hold

        attention_mask: (B, past + T), 0 at padding on the left or on the right; None is all 1
        target_context: (B,), how many sentences of the target follow the sentence that `tokens`
            begin in; None is 0. Only a selector reads it

        Raises ValueError for a cache in training with gradient checkpoints.
        """
        refuse_cache(past_key_values, self.layers)
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        if past == 0:
            tokens = self._started(tokens, attention_mask)
        states = [self.dropout(self.embed_tokens(tokens))]
        source = self.source(tokens, states[0], encoder_outputs, target_context, past_key_values)
        bias = self._bias(tokens.shape[1], past, attention_mask)
        selection = []
        for layer in self.layers:
            x, weights = layer(states[-1], bias, *source, past_key_values=past_key_values)
            states.append(x)
            selection.append(weights)
        states[-1] = self.dropout(self.final_norm(states[-1]))
        return T5MemDecoderOutput(tuple(states), self.reported(selection))

    def source(
        self,
        tokens: Tensor,
        x: Tensor,
        encoder_outputs: T5MemEncoderOutput,
        target_context: Tensor | None,
        past_key_values: EncoderDecoderCache | None,
    ) -> tuple[Any, ...]:
        """What the layers' cross attention reads. x: (B, T, E), the tokens, embedded"""
        states, visible = encoder_outputs.last_hidden_state, encoder_outputs.attention_mask
        return states, masked(states.new_zeros(()), visible.bool()[:, None, None])

    def reported(self, selection: list[Tensor | None]) -> tuple[Tensor, ...]:
        """What is returned of the weights that the layers return."""
        return ()

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


class T5MemSlotDecoder(T5Decoder):
    """T5's decoder over the concatenated slots: T5Mem without a selector."""

    def source(
        self,
        tokens: Tensor,
        x: Tensor,
        encoder_outputs: T5MemEncoderOutput,
        target_context: Tensor | None,
        past_key_values: EncoderDecoderCache | None,
    ) -> tuple[Any, ...]:
        slots, present = encoder_outputs.slots, encoder_outputs.attention_mask.bool().any(dim=2)
        visible = present.repeat_interleave(slots.shape[2], dim=1)[:, None, None]
        return slots.flatten(1, 2), masked(slots.new_zeros(()), visible)


class T5MemDecoder(T5Decoder):
    """T5's decoder whose layers attend to mixtures of the sequences that a selector weighs."""

    def __init__(self, config: T5MemConfig) -> None:
        super().__init__(config)
        self.selector = T5MemSelector(config)

    def source(
        self,
        tokens: Tensor,
        x: Tensor,
        encoder_outputs: T5MemEncoderOutput,
        target_context: Tensor | None,
        past_key_values: EncoderDecoderCache | None,
    ) -> tuple[Any, ...]:
        written = past_key_values is not None and past_key_values.is_updated.get(0)
        ahead = self._ahead(tokens, target_context)
        return self.selector(x, encoder_outputs, ahead, not written)

    def reported(self, selection: list[Tensor | None]) -> tuple[Tensor, ...]:
        weights = tuple(one for one in selection if one is not None)
        return weights if self.selector.by_layer else weights[:1]

    def _ahead(self, tokens: Tensor, target_context: Tensor | None) -> Tensor:
        """(B, T), how many sentences of the target follow the sentence of a token."""
        if target_context is None:
            return torch.zeros_like(tokens)
        ahead = target_context.unsqueeze(1).expand_as(tokens)
        if self.config.context_separator_id is not None:
            ahead = ahead - tokens.eq(self.config.context_separator_id).cumsum(dim=1)
        return ahead.clamp(min=0)


class Selected(NamedTuple):
    """What the cross attention of the decoder's layers reads.

    sentences: (B, K, S, E), the projected sequences; None if a cache holds keys and values
    padding: (B, K, S), True at padding
    slots: (B, K, M E), the projected slots
    bias: (B, T, K), of the selector's logits
    weights: (B, T, K), for all layers; None where each layer has its own
    selector: which makes the weights of a layer
    """

    sentences: Tensor | None
    padding: Tensor
    slots: Tensor
    bias: Tensor
    weights: Tensor | None
    selector: "T5MemSelector"

    def weights_for(self, query: Tensor) -> Tensor:
        """The weights (B, T, K) of a layer whose normed self-attention output is query."""
        if self.weights is not None:
            return self.weights
        return self.selector.select(query, self.slots, self.padding, self.bias)


class T5MemSelector(nn.Module):
    """Weighs the K sequences for every target token: equation 3, and the W^sent of equation 4.

    A learned bias for each distance is added to the logits. The distance is counted from the
    sequence whose translation is being written.
    """

    def __init__(self, config: T5MemConfig) -> None:
        super().__init__()
        self.by_layer = config.selector_query == "layer"
        self.sequences = config.max_sequences
        size, source_dim = config.decoder_embed_dim, config.encoder_embed_dim
        width = config.slots * source_dim
        self.q_proj = Projection(size, width, (size * width) ** -0.5)
        self.k_proj = Projection(source_dim, source_dim, source_dim**-0.5)
        self.sentence_proj = Projection(source_dim, source_dim, source_dim**-0.5)
        # From the sequences after the one that is being translated to those before it.
        self.distance_bias = nn.Parameter(torch.empty(2 * config.max_sequences - 1))

    def forward(
        self, x: Tensor, encoder_outputs: T5MemEncoderOutput, ahead: Tensor, first: bool
    ) -> Selected:
        """x: (B, T, E), the embedded previous tokens
        ahead: (B, T), how many sentences of the target follow the sentence of a token
        first: whether the sequences are read for the first time
        """
        padding = ~encoder_outputs.attention_mask.bool()
        slots = self.k_proj(encoder_outputs.slots).flatten(2)
        bias = self.bias(slots.shape[1], ahead)
        return Selected(
            self.sentence_proj(encoder_outputs.last_hidden_state) if first else None,
            padding,
            slots,
            bias,
            None if self.by_layer else self.select(x, slots, padding, bias),
            self,
        )

    def select(self, query: Tensor, slots: Tensor, padding: Tensor, bias: Tensor) -> Tensor:
        """Equation 3. query: (B, T, E); the others as in `Selected`. Returns (B, T, K)."""
        return select_sequences(self.q_proj(query), slots, padding.all(dim=2), bias=bias)

    def bias(self, count: int, ahead: Tensor) -> Tensor:
        """ahead: (B, T). Returns (B, T, K), for K sequences of which the current one is last."""
        before_current = torch.arange(count - 1, -1, -1, device=ahead.device)
        distance = before_current - ahead.unsqueeze(2)
        # A target context longer than the source's gets the last entry of the table.
        return self.distance_bias[(distance + self.sequences - 1).clamp(min=0)]


class T5MemCrossAttention(T5Projections):
    """Attention of every target token to its own mixture of the sequences: equations 4 and 5."""

    def forward(self, x: Tensor, *source: Any) -> tuple[Tensor, Tensor]:
        """x: (B, T, E); source: the fields of a `Selected`, and a cache or None.

        Returns (B, T, E), and the selection's weights (B, T, K).
        """
        *fields, past_key_values = source
        selected = Selected(*fields)
        keys, values = written_once(past_key_values, self.layer, lambda: self._written(selected))
        state = MixtureState(keys, values, (~selected.padding).to(keys.dtype))
        weights = selected.weights_for(x)
        q = self.split(self.q_proj(x))
        return self.joined(mixture_read(q, weights, state, dropout=self.dropout)), weights

    def _written(self, selected: Selected) -> tuple[Tensor, Tensor]:
        k, v = (self.split(f(selected.sentences)) for f in (self.k_proj, self.v_proj))
        keys, values, _ = mixture_write(k, v, selected.padding)
        return keys, values
