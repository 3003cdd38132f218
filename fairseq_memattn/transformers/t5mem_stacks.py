"""The encoders and decoders of T5 and T5Mem with transformers' arguments, caches and checkpoints.

The names of the weights are those of `networks`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput

from fairseq_memattn.networks import t5, t5_layers, t5mem, t5mem_encoder
from fairseq_memattn.networks.t5 import Decoded, Encoded, T5State
from fairseq_memattn.networks.t5_layers import LayerState
from fairseq_memattn.networks.t5mem_encoder import join_sequences
from fairseq_memattn.transformers.arguments import refuse_cache, wants_states
from fairseq_memattn.transformers.states import Growing, source_of
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
    slots: Tensor | None = None


class T5EncoderLayer(GradientCheckpointingLayer, t5_layers.T5EncoderLayer):
    """A layer of T5's encoder."""


class T5MemEncoderLayer(GradientCheckpointingLayer, t5mem_encoder.T5MemEncoderLayer):
    """A layer of T5Mem's encoder."""


class T5DecoderLayer(GradientCheckpointingLayer, t5_layers.T5DecoderLayer):
    """A layer of a decoder."""


class T5Encoder(t5.T5Encoder):
    """T5's encoder of one sequence."""

    main_input_name = "input_ids"
    layer_class: Any = T5EncoderLayer
    network: Any = t5.T5Encoder

    def __init__(self, config: T5MemConfig) -> None:
        super().__init__(config.sizes("encoder"))
        self.config = config

    def build_layer(self) -> nn.Module:
        return self.layer_class(self.sizes)

    def forward(  # type: ignore[override]
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
        collects = wants_states(self.config, output_hidden_states, output_attentions)
        return self.encode(
            input_ids, padding_of(input_ids, attention_mask, self.sizes.pad), collects
        )

    def encode(self, tokens: Tensor, padding: Tensor, collects: bool) -> T5MemEncoderOutput:
        """What the network's `forward` computes. collects: whether to return hidden states"""
        states: list[Tensor] = []
        collected = states if collects else None
        encoded = self.network.forward(self, tokens, padding, hidden_states=collected)
        if collects:
            parts = [part for part in (encoded.slots, encoded.states) if part is not None]
            states.append(torch.cat(parts, dim=-2))
        return T5MemEncoderOutput(
            last_hidden_state=encoded.states,
            hidden_states=tuple(states) or None,
            attention_mask=(~encoded.padding).long(),
            slots=encoded.slots,
        )


class T5MemEncoder(T5Encoder, t5mem_encoder.T5MemEncoder):
    """T5Mem's encoder of K sequences, each with a slot of M memory tokens in front."""

    layer_class = T5MemEncoderLayer
    network: Any = t5mem_encoder.T5MemEncoder

    def forward(  # type: ignore[override]
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
        collects = wants_states(self.config, output_hidden_states, output_attentions)
        pad, padding = self.sizes.pad, None
        if context_input_ids is not None:
            padding = padding_of(context_input_ids, context_attention_mask, pad)
            if context_input_ids.numel() and padding.shape[1] >= self.sizes.sequences:
                raise ValueError(
                    f"`context_input_ids` must have at most {self.sizes.sequences - 1} sequences "
                    f"(`max_sequences` less the current one), but has {padding.shape[1]}."
                )
        current_padding = padding_of(input_ids, attention_mask, pad)
        sequences = join_sequences(input_ids, context_input_ids, current_padding, padding, pad)
        return self.encode(*sequences, collects)


def padding_of(tokens: Tensor, attention_mask: Tensor | None, pad: int) -> Tensor:
    """True at padding."""
    return tokens.eq(pad) if attention_mask is None else ~attention_mask.bool()


class T5Decoder(t5.T5Decoder):
    """T5's decoder.

    As in fairseq, the first token is `decoder_start_token_id` whatever it is given as, so that
    fairseq's inputs, which begin with the end of sentence, mean the same here.
    """

    def __init__(self, config: T5MemConfig) -> None:
        super().__init__(config.sizes("decoder"))
        self.config = config

    def build_layer(self) -> nn.Module:
        return T5DecoderLayer(self.sizes, self.build_cross_attention())

    def decode(
        self,
        tokens: Tensor,
        encoder_outputs: T5MemEncoderOutput,
        *,
        attention_mask: Tensor | None = None,
        target_context: Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        hidden_states: list[Tensor] | None = None,
    ) -> Decoded:
        """tokens: (B, T), those that the cache does not hold

        attention_mask: (B, past + T), 0 at padding on the left or on the right; None is all 1
        target_context: (B,), how many sentences of the target follow the sentence that `tokens`
            begin in; None is 0. Only a selector reads it
        hidden_states: a list that gets the states of the embeddings and of all layers

        Raises ValueError for a cache in training with gradient checkpoints.
        """
        refuse_cache(past_key_values, self.layers)
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        if past == 0:
            tokens = self._started(tokens, attention_mask)
        padding = ~encoder_outputs.attention_mask.bool()
        encoded = Encoded(encoder_outputs.last_hidden_state, padding, encoder_outputs.slots)
        options: dict[str, Any] = {"hidden_states": hidden_states}
        if attention_mask is not None:
            options["key_padding_mask"] = ~attention_mask.bool()
        if past_key_values is None:
            decoded = self(tokens, encoded, target_context, **options)
        else:
            layers = self._layers(encoded, past_key_values)
            state = T5State(layers, past, self.selected(encoded), target_context)
            decoded, _ = self.step(tokens, state, **options)
        if hidden_states is not None:
            hidden_states.append(decoded.states)
        return decoded

    def _layers(self, encoded: Encoded, cache: EncoderDecoderCache) -> tuple[LayerState, ...]:
        """The states of the layers, whose source the cache keeps from the first step on."""
        source = source_of(cache, lambda: [layer.memory for layer in self.start(encoded).layers])
        visible, layers = self.visible(encoded), []
        for number, (layer, written) in enumerate(zip(self.layers, source, strict=True)):
            memory = layer.cross_attention.block.restored(written.keys, written.values, visible)
            own: Any = Growing(cache.self_attention_cache, number)
            layers.append(LayerState(own, memory))
        return tuple(layers)

    def _started(self, tokens: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The tokens, with the start token as the first one that is not padding."""
        visible = torch.ones_like(tokens) if attention_mask is None else attention_mask.long()
        first = visible.cumsum(dim=1).eq(1) & visible.eq(1)
        return tokens.masked_fill(first, self.config.decoder_start_token_id)


class T5MemDecoder(T5Decoder, t5mem.T5MemDecoder):
    """T5's decoder whose layers attend to mixtures of the sequences that a selector weighs."""


class T5MemSlotDecoder(T5Decoder, t5mem.T5MemSlotDecoder):
    """T5's decoder over the concatenated slots: T5Mem without a selector."""


def decoder_class(config: T5MemConfig) -> type[T5Decoder]:
    """The decoder of a design."""
    if not config.slots:
        return T5Decoder
    return T5MemDecoder if config.selector else T5MemSlotDecoder
