"""GenBERT over GMAT's encoder: one set of weights that encodes and decodes.

Sources: Geva et al., "Injecting Numerical Reasoning Skills into Language Models"; Gupta and Berant,
"GMAT: Global Memory Augmentation for Transformers", section 3.2 and appendix A.1.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import DynamicCache, EncoderDecoderCache, GenerationMixin
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils import can_return_tuple

from fairseq_memattn.attention.nn.global_memory import GlobalMemoryAttention
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.transformers.attention_weights import check_attentions
from fairseq_memattn.transformers.cache_name import NEW, OLD, named, takes_either_name
from fairseq_memattn.transformers.gmat_configuration import GMATConfig
from fairseq_memattn.transformers.gmat_modeling import (
    GMATHead,
    GMATLayer,
    GMATModel,
    GMATPreTrainedModel,
    token_positions,
)
from fairseq_memattn.transformers.labels import decoder_inputs, visible_inputs, visible_words
from fairseq_memattn.transformers.recomputation import refuse_cache
from fairseq_memattn.transformers.search import FairseqSearch


class GenBERTConfig(GMATConfig):
    """The configuration of GenBERT over GMAT's encoder.

    decoder_layers: how many of the encoder's layers decode, the last ones; None is all of them

    Raises MemAttnError for values that do not fit together.
    """

    model_type = "memattn_gmat_genbert"
    keys_to_ignore_at_inference = [OLD, NEW]

    decoder_layers: int | None = None
    is_encoder_decoder: bool = True
    decoder_start_token_id: int | None = 2
    use_cache: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.sparsity == "lsh":
            raise MemAttnError("`sparsity` lsh has no key projection, which the decoder needs")
        if self.decoder_layers is None:
            self.decoder_layers = self.num_hidden_layers
        if not 1 <= self.decoder_layers <= self.num_hidden_layers:
            raise MemAttnError(
                f"`decoder_layers` must be from 1 to the {self.num_hidden_layers} "
                f"`num_hidden_layers`, but is {self.decoder_layers}"
            )


class GenBERTDecoderLayer(GradientCheckpointingLayer):
    """A layer of the decoder, which computes with the weights of a layer of the encoder.

    number: of the layer in the decoder, from 0
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def forward(
        self,
        x: Tensor,
        tied: GMATLayer,
        visible: Tensor | None,
        states: Tensor,
        visible_states: Tensor,
        past_key_values: EncoderDecoderCache | None = None,
    ) -> Tensor:
        """x: (B, T, E); tied: whose weights it uses
        visible: (B or 1, 1, T, T with the past), True where a token is seen; None is causal
        states: (B, S, E), the encoder's; visible_states: (B, 1, 1, S)
        """
        attention, norm = tied.self_attn, tied.self_attn_layer_norm

        def to_itself(x: Tensor) -> Tensor:
            keys, values = _keys_and_values(attention, x)
            if past_key_values is not None:
                cache = past_key_values.self_attention_cache
                keys, values = cache.update(keys, values, self.number)
            return _attend(attention, x, keys, values, visible)

        def to_states(x: Tensor) -> Tensor:
            keys, values = self._of_states(attention, states, past_key_values)
            return _attend(attention, x, keys, values, visible_states)

        x = tied.residual(norm, x, to_itself)
        x = tied.residual(norm, x, to_states)
        return tied.residual(tied.final_layer_norm, x, tied.feed_forward)

    def _of_states(
        self, attention: GlobalMemoryAttention, states: Tensor, past: EncoderDecoderCache | None
    ) -> tuple[Tensor, Tensor]:
        """The keys and values of the encoder's states, which are computed once."""
        if past is None:
            return _keys_and_values(attention, states)
        cache = past.cross_attention_cache
        if past.is_updated.get(self.number):
            layer: Any = cache.layers[self.number]
            return layer.keys, layer.values
        past.is_updated[self.number] = True
        return cache.update(*_keys_and_values(attention, states), self.number)


def _keys_and_values(attention: GlobalMemoryAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    assert attention.k_proj is not None
    return attention.split(attention.k_proj(x)), attention.split(attention.v_proj(x))


def _attend(
    attention: GlobalMemoryAttention, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
) -> Tensor:
    out = scaled_dot_product_attention(
        attention.split(attention.q_proj(x)),
        keys,
        values,
        attn_mask=mask,
        dropout_p=attention.dropout if attention.training else 0.0,
        is_causal=mask is None,
    )
    projected: Tensor = attention.out_proj(attention.joined(out))
    return projected


class GenBERTForConditionalGeneration(GMATPreTrainedModel, FairseqSearch, GenerationMixin):
    """GMAT's encoder, which decodes too: its layers attend to the target and to the source.

    A learned vector `segment` is added to every embedding of the target. The decoder does not use
    the memory.
    """

    config: GenBERTConfig
    reads_vectors = True
    _no_split_modules = ["GMATLayer"]
    _tied_weights_keys = {"lm_head.decoder.weight": "gmat.embed_tokens.weight"}

    def __init__(self, config: GenBERTConfig) -> None:
        super().__init__(config)
        assert config.decoder_layers is not None
        self.loss_type = "ForMaskedLM"  # the loss does not shift the labels
        self.gmat = GMATModel(config)
        self.segment = nn.Parameter(torch.zeros(config.hidden_size))
        self.decoder_layers = nn.ModuleList(
            GenBERTDecoderLayer(number) for number in range(config.decoder_layers)
        )
        self.lm_head = GMATHead(config, config.vocab_size)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if module is self:
            init.normal_(self.segment, std=self.config.initializer_range)

    def get_encoder(self, *args: Any, **kwargs: Any) -> GMATModel:
        return self.gmat

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head.decoder = new_embeddings

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """The labels (B, T), one place to the right, behind the first symbol of the decoder."""
        config = self.config
        start = config.decoder_start_token_id
        first = config.eos_token_id if start is None else start
        assert isinstance(first, int) and config.pad_token_id is not None
        return decoder_inputs(labels, first, config.pad_token_id)

    @can_return_tuple
    @takes_either_name
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """input_ids, attention_mask, inputs_embeds: as in `GMATModel.forward`
        decoder_input_ids: (B, T), of which those in `past_key_values` are left out. None is made
            of the labels
        decoder_attention_mask: (B, T with the past), 0 at padding, which may be anywhere
        encoder_outputs: of `GMATModel`, with its `attention_mask` where that is not given
        labels: (B, T), -100 where there is no loss

        Raises MemAttnError without decoder_input_ids and labels, and ValueError for a cache in
        training with gradient checkpoints.
        """
        check_attentions(self.config, output_attentions)
        if decoder_input_ids is None:
            if labels is None:
                raise MemAttnError("the model needs `decoder_input_ids` or `labels`")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if decoder_attention_mask is None:
            assert self.config.pad_token_id is not None
            pad, start = self.config.pad_token_id, self.config.decoder_start_token_id
            if labels is not None:
                past = 0 if past_key_values is None else past_key_values.get_seq_length()
                decoder_attention_mask = visible_inputs(decoder_input_ids, labels, pad, past)
            elif past_key_values is None and start is not None:
                decoder_attention_mask = visible_words(decoder_input_ids, start, pad)
        if encoder_outputs is None:
            encoder_outputs = self.gmat(
                input_ids,
                attention_mask,
                inputs_embeds,
                output_hidden_states=output_hidden_states,
                return_dict=True,
            )
        states = encoder_outputs[0]
        if use_cache is None:
            use_cache = self.config.use_cache and labels is None
            use_cache = use_cache and (past_key_values is not None or not self.training)
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(), DynamicCache())
        features, hidden = self._decode(
            decoder_input_ids,
            decoder_attention_mask,
            states,
            _visible_states(encoder_outputs, attention_mask),
            past_key_values,
        )
        logits = self.lm_head(features)
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits,
                labels=labels.contiguous(),
                vocab_size=self.config.vocab_size,
                **kwargs,
            )
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            **named(past_key_values if use_cache else None),
            decoder_hidden_states=hidden if output_hidden_states else None,
            encoder_last_hidden_state=states,
            encoder_hidden_states=getattr(encoder_outputs, "hidden_states", None),
        )

    def _decode(
        self,
        tokens: Tensor,
        attention_mask: Tensor | None,
        states: Tensor,
        visible_states: Tensor,
        past_key_values: EncoderDecoderCache | None,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The features (B, T, E) that enter the head, and the states after each layer."""
        refuse_cache(past_key_values, self.decoder_layers)
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        length = past + tokens.shape[1]
        self.gmat.check_length(length)
        if attention_mask is None:
            attention_mask = torch.ones(len(tokens), length, dtype=torch.bool, device=tokens.device)
            visible = None if past == 0 else _visible(attention_mask, past)
        else:
            visible = _visible(attention_mask, past)
        padding = attention_mask == 0
        positions = token_positions(padding)[:, past:]
        x = self.gmat.embedded(tokens, positions, padding[:, past:], added=self.segment)
        hidden = [x]
        tied = self.gmat.layers[len(self.gmat.layers) - len(self.decoder_layers) :]
        for layer, weights in zip(self.decoder_layers, tied, strict=True):
            x = layer(x, weights, visible, states, visible_states, past_key_values=past_key_values)
            hidden.append(x)
        if self.gmat.layer_norm is not None:
            x = hidden[-1] = self.gmat.layer_norm(x)
        return x, tuple(hidden)


def _visible_states(encoder_outputs: Any, attention_mask: Tensor | None) -> Tensor:
    """Where the encoder's states are not padding, (B, 1, 1, S).

    `generate` passes no mask that it was not given. The mask is then that of the encoder's output,
    if it has one.
    """
    if attention_mask is None:
        attention_mask = getattr(encoder_outputs, "attention_mask", None)
    if attention_mask is None:
        attention_mask = torch.ones_like(encoder_outputs[0][..., 0], dtype=torch.bool)
    return attention_mask[:, None, None] != 0


def _visible(attention_mask: Tensor, past: int) -> Tensor:
    """Which tokens a token sees: those before it without padding, and itself.

    attention_mask: (B, T), 0 at padding; past: of these tokens, those that attend no more

    Returns (B, 1, T - past, T).
    """
    places = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    own = places[past:].unsqueeze(1)
    seen = (places < own) & (attention_mask != 0)[:, None, None]
    return seen | (places == own)
