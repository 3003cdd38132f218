"""T5 and T5Mem as a model of transformers: `AutoModelForSeq2SeqLM`."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import EncoderDecoderCache, GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils.generic import can_return_tuple

from fairseq_memattn.networks.t5_layers import output_bias
from fairseq_memattn.transformers.arguments import (
    named,
    refuse_vectors,
    takes_either_name,
    wants_states,
)
from fairseq_memattn.transformers.labels import cross_entropy
from fairseq_memattn.transformers.search import FairseqSearch
from fairseq_memattn.transformers.t5mem_config import T5MemConfig
from fairseq_memattn.transformers.t5mem_stacks import (
    T5Encoder,
    T5MemEncoder,
    T5MemEncoderOutput,
    decoder_class,
)

# The parameter that the decoder's input and output share.
TABLE = "decoder.embed_tokens.weight"


@dataclass
class T5MemSeq2SeqLMOutput(Seq2SeqLMOutput):
    """transformers' output of a language model, and what the sequence selector selected.

    selection: weights (B, T, K) of the sequences, one for all layers or, with the selector query
        "layer", one for each layer; None without a selector
    """

    selection: tuple[Tensor, ...] | None = None


class T5MemForConditionalGeneration(PreTrainedModel, FairseqSearch, GenerationMixin):
    """A T5 or a T5Mem with the output of a language model: translation, answers, corrupted spans.

    T5Mem reads K sequences: `input_ids` is the last of them, and `context_input_ids` are those
    before it. They are the sentence to translate and those before it in its document, or the chunks
    of a long text:

        model.generate(sentence, context_input_ids=torch.stack([two_before, one_before], dim=1))

    A model of --task document_translation writes the translations of the context first, each with
    `context_separator_id` after it; `target_context` is their number. `generate` writes them
    itself, or continues a target that has them already. This target is `decoder_input_ids`, begins
    with `decoder_start_token_id`, and in a batch is padded on the left with a
    `decoder_attention_mask`.

    With 0 slots this is T5. It is not transformers' `T5ForConditionalGeneration`, because that
    class cannot hold every model that fairseq trains: fairseq lowers the logit of its padding
    symbol, which T5 does not have, encoder and decoder may differ in size and have tables of their
    own, and distances beyond the exact buckets are assigned by integer arithmetic.
    """

    config_class = T5MemConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True  # for Trainer, which passes `num_items_in_batch`
    _supports_sdpa = True
    _no_split_modules = ["T5EncoderLayer", "T5MemEncoderLayer", "T5DecoderLayer"]
    _tied_weights_keys = {"lm_head.weight": TABLE}

    config: T5MemConfig

    def __init__(self, config: T5MemConfig) -> None:
        super().__init__(config)
        self.encoder = T5MemEncoder(config) if config.slots else T5Encoder(config)
        self.decoder = decoder_class(config)(config)
        self.lm_head = nn.Linear(config.decoder_embed_dim, config.vocab_size, bias=False)
        if config.share_embeddings:
            self._tied_weights_keys = {
                "lm_head.weight": TABLE,
                "encoder.embed_tokens.weight": TABLE,
            }
        self.post_init()

    @can_return_tuple
    @takes_either_name
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        context_input_ids: Tensor | None = None,
        context_attention_mask: Tensor | None = None,
        target_context: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: T5MemEncoderOutput | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        inputs_embeds: None = None,
        decoder_inputs_embeds: None = None,
    ) -> T5MemSeq2SeqLMOutput:
        """input_ids: (B, S), the current sequences, with padding on either side

        context_input_ids: (B, K - 1, S'), the sequences before them, oldest first; a sequence of
            padding alone is absent, so that K may differ within a batch
        attention_mask, context_attention_mask: of their shapes, 1 at tokens and 0 at padding; None
            is found from the padding symbol
        target_context: (B,), how many sentences of the target follow the sentence that
            `decoder_input_ids` begin in; None is 0
        decoder_input_ids: (B, T), the target so far, or what `past_key_values` does not hold of it;
            None is made from the labels. As in fairseq, the first token means
            `decoder_start_token_id`, whatever it is
        decoder_attention_mask: (B, past + T), 0 at padding; None is 0 at padding before the first
            label, else 1
        encoder_outputs: what the encoder returned, in place of the arguments above it
        past_key_values: changed in place
        labels: (B, T), -100 where the loss is not computed
        output_attentions: must not be True
        num_items_in_batch: what the sum of the losses is divided by; None is the number of labels
        inputs_embeds, decoder_inputs_embeds: must be None, as PEFT passes them

        Returns logits (B, T, symbols), and with labels the cross-entropy.

        Raises ValueError for a context without memory slots, for more than `max_sequences`
        sequences, and where neither `decoder_input_ids` nor labels are given.
        """
        refuse_vectors(inputs_embeds, decoder_inputs_embeds)
        collects = wants_states(self.config, output_hidden_states, output_attentions)
        if encoder_outputs is None:
            context: dict[str, Any] = {}
            if self.config.slots:
                context["context_input_ids"] = context_input_ids
                context["context_attention_mask"] = context_attention_mask
            elif context_input_ids is not None:
                raise ValueError("`context_input_ids` must be left out, as the model has no slots.")
            encoder_outputs = self.encoder(
                input_ids, attention_mask, **context, output_hidden_states=collects
            )
        tokens = self.decoder_tokens(decoder_input_ids, labels)
        if decoder_attention_mask is None:
            decoder_attention_mask = self.visible_tokens(tokens, labels, past_key_values)
        past_key_values = self.cache_of(past_key_values, use_cache, labels)
        hidden_states: list[Tensor] | None = [] if collects else None
        decoded = self.decoder.decode(
            tokens,
            encoder_outputs,
            attention_mask=decoder_attention_mask,
            target_context=target_context,
            past_key_values=past_key_values,
            hidden_states=hidden_states,
        )
        logits = self.logits(decoded.states)
        return T5MemSeq2SeqLMOutput(
            loss=cross_entropy(logits, labels, num_items_in_batch),
            logits=logits,
            **named(past_key_values),
            decoder_hidden_states=None if hidden_states is None else tuple(hidden_states),
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            selection=decoded.weights or None,
        )

    def source_lengths(
        self, attention_mask: Tensor, context_attention_mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        """(B,), the tokens of all sequences, for `max_len_a`."""
        lengths = attention_mask.sum(dim=1)
        context = kwargs.get("context_input_ids")
        if context is None:
            return lengths
        if context_attention_mask is None:
            context_attention_mask = context.ne(self.config.pad_token_id)
        return lengths + context_attention_mask.sum(dim=(1, 2))

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        """transformers' hook. input_ids: (B, past + T), the target so far"""
        inputs = GenerationMixin.prepare_inputs_for_generation(self, input_ids, *args, **kwargs)  # type: ignore[arg-type]
        separator = self.config.context_separator_id
        if inputs.get("target_context") is not None and separator is not None:
            past = input_ids.shape[1] - inputs["decoder_input_ids"].shape[1]
            written = input_ids[:, :past].eq(separator).sum(dim=1)
            inputs["target_context"] = inputs["target_context"] - written
        return inputs

    def logits(self, states: Tensor) -> Tensor:
        """The decoder's last states (B, T, E) as logits (B, T, symbols)."""
        if not self.config.scale_embedding:
            states = states * states.shape[2] ** -0.5
        logits: Tensor = self.lm_head(states)
        return logits + output_bias(logits, logits.shape[-1], self.config.pad_token_id)

    def get_input_embeddings(self) -> nn.Module:
        """The decoder's table, which is also the encoder's with `share_embeddings`."""
        return self.decoder.embed_tokens

    def set_input_embeddings(self, value: Any) -> None:
        self.decoder.embed_tokens = value
        if self.config.share_embeddings:
            self.encoder.embed_tokens = value
        elif self.config.source_vocab_size is None:
            # It is `vocab_size`, which is about to change.
            table: Any = self.encoder.embed_tokens
            self.config.source_vocab_size = table.num_embeddings

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """T5's first weights, and those of T5Mem's additions."""
        own = list(module.parameters(recurse=False))
        if own and all(getattr(weight, "_is_hf_initialized", False) for weight in own):
            return
        if isinstance(module, nn.RMSNorm):
            init.ones_(module.weight)
        draw: Any = getattr(module, "draw", None)
        if draw is not None:
            draw()
