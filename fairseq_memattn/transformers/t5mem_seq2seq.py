"""T5 and T5Mem as a model of transformers: `AutoModelForSeq2SeqLM`."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForSeq2SeqLM,
    DynamicCache,
    EncoderDecoderCache,
    GenerationMixin,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils.generic import can_return_tuple

from fairseq_memattn.transformers.auto_classes import register
from fairseq_memattn.transformers.t5mem_blocks import Projection, T5Embedding, T5PositionBias
from fairseq_memattn.transformers.t5mem_config import T5MemConfig
from fairseq_memattn.transformers.t5mem_decoder import T5Decoder
from fairseq_memattn.transformers.t5mem_encoder import (
    T5Encoder,
    T5MemEncoderOutput,
    check_attentions,
)

# Added to the logit of padding, which T5 never predicts: fairseq's model adds it too.
PADDING_LOGIT = -20.0


class T5MemForConditionalGeneration(PreTrainedModel, GenerationMixin):
    """A T5 or a T5Mem with the language model's output, for translation, answers and spans.

    With 0 slots this is T5. It is not transformers' `T5ForConditionalGeneration`, because that
    class cannot hold every model that fairseq trains: fairseq lowers the logit of its padding
    symbol, which T5 does not have, encoder and decoder may differ in size and have tables of their
    own, and distances beyond the exact buckets are assigned by integer arithmetic.
    """

    config_class = T5MemConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["T5EncoderLayer", "T5DecoderLayer"]
    _tied_weights_keys = {"lm_head.weight": "decoder.embed_tokens.weight"}

    config: T5MemConfig

    def __init__(self, config: T5MemConfig) -> None:
        super().__init__(config)
        self.encoder, self.decoder = T5Encoder(config), T5Decoder(config)
        self.lm_head = nn.Linear(config.decoder_embed_dim, config.vocab_size, bias=False)
        if config.share_embeddings:
            table = "decoder.embed_tokens.weight"
            self._tied_weights_keys = {
                "lm_head.weight": table,
                "encoder.embed_tokens.weight": table,
            }
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: T5MemEncoderOutput | tuple[Any, ...] | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Seq2SeqLMOutput:
        """input_ids, attention_mask: as in `T5Encoder`

        decoder_input_ids: (B, T), the target so far, or what `past_key_values` does not hold of it;
            None is made from the labels
        decoder_attention_mask: (B, past + T), 0 at padding
        encoder_outputs: what `self.encoder` returns, or a tuple of it, in place of `input_ids`
        past_key_values: changed in place
        labels: (B, T), -100 where the loss is not computed

        Returns logits (B, T, symbols), and with labels the mean cross-entropy.
        """
        check_attentions(output_attentions)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask, output_hidden_states=output_hidden_states
            )
        elif isinstance(encoder_outputs, tuple):
            encoder_outputs = T5MemEncoderOutput(*encoder_outputs)
        if decoder_input_ids is None and labels is not None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if past_key_values is None and use_cache and labels is None and not self.training:
            past_key_values = EncoderDecoderCache(DynamicCache(), DynamicCache())
        decoded = self.decoder(
            decoder_input_ids,
            encoder_outputs,
            attention_mask=decoder_attention_mask,
            past_key_values=past_key_values,
        )
        logits = self.logits(decoded.hidden_states[-1])
        loss = None if labels is None else cross_entropy(logits.flatten(0, 1), labels.flatten())
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=past_key_values,
            decoder_hidden_states=decoded.hidden_states if output_hidden_states else None,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
        )

    def logits(self, states: Tensor) -> Tensor:
        """The decoder's last states (B, T, E) as logits (B, T, symbols)."""
        if not self.config.scale_embedding:
            states = states * states.shape[2] ** -0.5
        logits: Tensor = self.lm_head(states)
        logits[..., self.config.pad_token_id] += PADDING_LOGIT
        return logits

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """The labels (B, T), one position later, after the start token."""
        start = torch.full_like(labels[:, :1], self.config.decoder_start_token_id)
        tokens = torch.cat([start, labels[:, :-1]], dim=1)
        return tokens.masked_fill(tokens.eq(-100), self.config.pad_token_id)

    def get_input_embeddings(self) -> nn.Module:
        """The decoder's table, which is also the encoder's with `share_embeddings`."""
        return self.decoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.decoder.embed_tokens = value
        if self.config.share_embeddings:
            self.encoder.embed_tokens = value

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """T5's first weights."""
        if isinstance(module, nn.RMSNorm):
            init.ones_(module.weight)
        elif isinstance(module, Projection):
            init.normal_(module.weight, std=module.deviation)
        elif isinstance(module, T5PositionBias):
            init.normal_(module.table, std=module.deviation)
        elif isinstance(module, T5Embedding):
            init.normal_(module.weight, std=module.embedding_dim**-0.5 if module.scaled else 1.0)
            if not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])


register(T5MemConfig, {AutoModelForSeq2SeqLM: T5MemForConditionalGeneration})
