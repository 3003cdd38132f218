"""GenBERT over GMAT's encoder in transformers' format."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import EncoderDecoderCache, GenerationMixin
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils import can_return_tuple

from fairseq_memattn.networks import genbert
from fairseq_memattn.networks.gmat_layers import MaskedLMHead
from fairseq_memattn.transformers.arguments import (
    NEW,
    OLD,
    named,
    refuse_cache,
    takes_either_name,
    wants_states,
)
from fairseq_memattn.transformers.gmat_modeling import GMATConfig, GMATModel, GMATPreTrainedModel
from fairseq_memattn.transformers.search import FairseqSearch
from fairseq_memattn.transformers.states import Growing, source_of


class GenBERTConfig(GMATConfig, genbert.GenBERTConfig):
    """The configuration of GenBERT over GMAT's encoder. The options are those of the network.

    Raises MemAttnError for values that do not fit together.
    """

    model_type = "memattn_gmat_genbert"
    keys_to_ignore_at_inference = [OLD, NEW]

    is_encoder_decoder: bool = True
    decoder_start_token_id: int | None = 2
    use_cache: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        genbert.GenBERTConfig.__post_init__(self)


class GenBERTDecoderLayer(GradientCheckpointingLayer, genbert.GenBERTDecoderLayer):
    """A layer of which the backward pass may compute the states again."""


class GenBERTForConditionalGeneration(
    genbert.GenBERTDecoder, GMATPreTrainedModel, FairseqSearch, GenerationMixin
):
    """GMAT's encoder, which decodes too: its layers attend to the target and to the source.

    A learned vector `segment` is added to every embedding of the target. The decoder does not use
    the memory.
    """

    config: GenBERTConfig
    reads_vectors = True
    _no_split_modules = ["GMATLayer"]
    _tied_weights_keys = {"lm_head.decoder.weight": "gmat.embed_tokens.weight"}

    def __init__(self, config: GenBERTConfig) -> None:
        GMATPreTrainedModel.__init__(self, config)
        assert config.decoder_layers is not None
        self.loss_type = "ForMaskedLM"  # the loss does not shift the labels
        genbert.GenBERTDecoder.__init__(self, config.hidden_size, config.decoder_layers)
        self.gmat = GMATModel(config)
        self.lm_head = MaskedLMHead(config, config.vocab_size)
        self.post_init()

    def build_layer(self) -> nn.Module:
        return GenBERTDecoderLayer()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if module is self:
            init.normal_(self.segment, std=self.config.initializer_range)

    def get_encoder(self, *args: Any, **kwargs: Any) -> GMATModel:
        return self.gmat

    def get_output_embeddings(self) -> Any:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head.decoder = new_embeddings

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

        Raises ValueError without decoder_input_ids and labels, and for a cache in training with
        gradient checkpoints.
        """
        collects = wants_states(self.config, output_hidden_states, output_attentions)
        tokens = self.decoder_tokens(decoder_input_ids, labels)
        if decoder_attention_mask is None:
            decoder_attention_mask = self.visible_tokens(tokens, labels, past_key_values)
        if encoder_outputs is None:
            encoder_outputs = self.gmat(
                *(input_ids, attention_mask, inputs_embeds),
                output_hidden_states=collects,
                return_dict=True,
            )
        states = encoder_outputs[0]
        past_key_values = self.cache_of(past_key_values, use_cache, labels)
        hidden = self._decode(
            tokens,
            decoder_attention_mask,
            states,
            source_padding_of(encoder_outputs, attention_mask),
            past_key_values,
        )
        logits = self.lm_head(hidden[-1])
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits,
                labels=labels.contiguous(),
                vocab_size=self.config.vocab_size,
                **kwargs,
            )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            **named(past_key_values),
            decoder_hidden_states=hidden if collects else None,
            encoder_last_hidden_state=states,
            encoder_hidden_states=getattr(encoder_outputs, "hidden_states", None),
        )

    def _decode(
        self,
        tokens: Tensor,
        attention_mask: Tensor | None,
        states: Tensor,
        source_padding: Tensor,
        past_key_values: EncoderDecoderCache | None,
    ) -> tuple[Tensor, ...]:
        """The states before the first layer and after each layer; the last enter the head."""
        refuse_cache(past_key_values, self.decoder_layers)
        padding = None if attention_mask is None else attention_mask == 0
        if past_key_values is None:
            return super().forward(self.gmat, tokens, states, source_padding, padding)
        past = past_key_values.get_seq_length()
        source = source_of(
            past_key_values, lambda: self.start(self.gmat, states, source_padding).source
        )
        own: Any = [
            Growing(past_key_values.self_attention_cache, number) for number in range(len(source))
        ]
        before, now = (None, None) if padding is None else (padding[:, :past], padding[:, past:])
        visible = ~source_padding[:, None, None]
        state = genbert.GenBERTState(visible, tuple(source), tuple(own), before, past)
        return self.step(self.gmat, tokens, state, now)[0]


def source_padding_of(encoder_outputs: Any, attention_mask: Tensor | None) -> Tensor:
    """Where the encoder's states are padding, (B, S).

    `generate` passes no mask that it was not given. The mask is then that of the encoder's output,
    if it has one.
    """
    if attention_mask is None:
        attention_mask = getattr(encoder_outputs, "attention_mask", None)
    if attention_mask is None:
        return torch.zeros_like(encoder_outputs[0][..., 0], dtype=torch.bool)
    return attention_mask == 0
