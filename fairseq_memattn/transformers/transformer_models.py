"""Translation, language modelling and masked language modelling with bounded memories."""

from typing import Any

from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast, MaskedLMOutput, Seq2SeqLMOutput
from transformers.utils.generic import can_return_tuple

from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.networks import gmat_layers
from fairseq_memattn.transformers.adaptive_vocabulary import AdaptiveSoftmax, Tail
from fairseq_memattn.transformers.arguments import (
    named,
    refuse_vectors,
    takes_either_name,
    wants_states,
)
from fairseq_memattn.transformers.bounded_model import BoundedModel, OwnCache
from fairseq_memattn.transformers.cache import MemoryCache
from fairseq_memattn.transformers.gmat_modeling import GMATConfig, GMATModel
from fairseq_memattn.transformers.labels import IGNORED, cross_entropy
from fairseq_memattn.transformers.search import FairseqSearch
from fairseq_memattn.transformers.stop_strings import StopsAtStrings
from fairseq_memattn.transformers.transformer_config import BoundedTransformerConfig, StackConfig
from fairseq_memattn.transformers.transformer_stacks import Decoder, Encoder


class BoundedTransformer(BoundedModel):
    """What the models share. Sequences are (B, T); attention masks are 0 at padding.

    Where a mask is not given, padding is where tokens are `pad_token_id`, as in fairseq. It may be
    on either side. The arguments that every `forward` has:

    output_hidden_states: return the embeddings and the states after each layer
    output_attentions: must not be True
    num_items_in_batch: what the sum of the losses is divided by; None is the number of labels
    inputs_embeds, decoder_inputs_embeds: must be None, as PEFT passes them

    Each `forward` raises ValueError for more positions than the model has, and where attention
    weights are asked for.
    """

    config_class = BoundedTransformerConfig
    config: Any
    base_model_prefix = "model"
    _no_split_modules = ["Encoder", "Decoder"]  # layers need the controls of their stack

    def _init_weights(self, module: nn.Module) -> None:
        """As fairseq initialises."""
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, ABCAttention):
            module.reset_parameters()
        elif isinstance(module, Tail):
            nn.init.xavier_uniform_(module.projection)

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """The embeddings as they are. Raises ValueError for another number of tokens."""
        size = self.config.vocab_size
        if new_num_tokens not in (None, size):
            raise ValueError(
                f"`new_num_tokens` must be the {size} tokens of the training, but is "
                f"{new_num_tokens}; train a model whose dictionary has the others."
            )
        return self.get_input_embeddings()

    def padding(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T), True at padding."""
        if mask is None:
            return tokens.eq(self.config.pad_token_id)
        return mask[:, -tokens.shape[1] :].eq(0)

    def tie(self, output: str, source: str, stack: StackConfig) -> None:
        """Ties an output projection, or the bands of an adaptive one, to the input embeddings."""
        adaptive = stack.adaptive_softmax
        ties = dict(self._tied_weights_keys or {})
        if adaptive is None:
            ties[f"{output}.weight"] = f"{source}.weight"
        elif adaptive["tied_words"]:
            bands = len(adaptive["cutoffs"])
            ties[f"{output}.words.weight"] = f"{source}.embeddings.0.0.weight"
            for band in range(1, bands):
                place = f"{output}.tails.{band - 1}"
                ties[f"{place}.words.weight"] = f"{source}.embeddings.{band}.0.weight"
                if adaptive["tied_projections"]:
                    ties[f"{place}.projection"] = f"{source}.embeddings.{band}.1.weight"
        self._tied_weights_keys = ties


def output_of(stack: StackConfig) -> nn.Module:
    """The projection of a decoder's outputs to logits, or to log probabilities by bands."""
    adaptive = stack.adaptive_softmax
    if adaptive is None:
        return nn.Linear(stack.output_dim, stack.vocab_size, bias=stack.output_bias)
    return AdaptiveSoftmax(embed_dim=stack.output_dim, **adaptive)


class BoundedTransformerForConditionalGeneration(  # type: ignore[misc]
    BoundedTransformer, FairseqSearch, OwnCache, GenerationMixin
):
    """fairseq's encoder-decoder: `transformer`, `abc_*_transformer`, those of kernels, and
    `gmat_transformer`.
    """

    def __init__(self, config: BoundedTransformerConfig) -> None:
        super().__init__(config)
        decoder = config.stack("decoder")
        self.encoder: Any
        if config.gmat is None:
            self.encoder = Encoder(config.stack("encoder"))
        else:
            self.encoder = GMATModel(GMATConfig(**config.gmat))
        self.decoder = Decoder(decoder)
        self.lm_head = output_of(decoder)
        if config.share_all_embeddings:
            self._tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}
        if config.share_all_embeddings or config.share_decoder_embeddings:
            source = "encoder" if config.share_all_embeddings else "decoder"
            self.tie("lm_head", f"{source}.embed_tokens", decoder)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    @can_return_tuple
    @takes_either_name
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: MemoryCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        inputs_embeds: None = None,
        decoder_inputs_embeds: None = None,
    ) -> Seq2SeqLMOutput:
        """Logits (B, T, V) of the tokens after `decoder_input_ids` (B, T).

        labels: (B, T), -100 at padding; without `decoder_input_ids` the decoder reads
            `decoder_start_token_id` and the labels but the last
        encoder_outputs: what the encoder returned before; `input_ids` is not read then
        past_key_values: the cache of the tokens before
        """
        refuse_vectors(inputs_embeds, decoder_inputs_embeds)
        collects = wants_states(self.config, output_hidden_states, output_attentions)
        hidden_states: list[Tensor] | None = [] if collects else None
        tokens = self.decoder_tokens(decoder_input_ids, labels)
        if encoder_outputs is None:
            assert input_ids is not None, "`input_ids` or `encoder_outputs` must be given."
            if attention_mask is None:
                attention_mask = input_ids.ne(self.config.pad_token_id)
            encoder_outputs = self.encoder(
                input_ids, attention_mask, output_hidden_states=collects, return_dict=True
            )
        source = encoder_outputs[0]
        if use_cache and past_key_values is None:
            past_key_values = MemoryCache(self.config)
        features = self.decoder(
            tokens,
            self.padding(tokens, decoder_attention_mask),
            source,
            None if attention_mask is None else attention_mask.eq(0),
            past_key_values,
            hidden_states,
        )
        logits = self.lm_head(features)
        return Seq2SeqLMOutput(
            loss=cross_entropy(logits, labels, num_items_in_batch),
            logits=logits,
            **named(past_key_values),
            decoder_hidden_states=None if hidden_states is None else tuple(hidden_states),
            encoder_last_hidden_state=source,
            encoder_hidden_states=getattr(encoder_outputs, "hidden_states", None),
        )


class BoundedTransformerForCausalLM(  # type: ignore[misc]
    BoundedTransformer, OwnCache, StopsAtStrings, GenerationMixin
):
    """fairseq's language model: `transformer_lm`, `abc_*_transformer_lm` and those of kernels.

    With an adaptive softmax, the logits are log probabilities.
    """

    def __init__(self, config: BoundedTransformerConfig) -> None:
        super().__init__(config)
        stack = config.stack("decoder")
        self.decoder, self.lm_head = Decoder(stack), output_of(stack)
        if config.share_decoder_embeddings:
            self.tie("lm_head", "decoder.embed_tokens", stack)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.decoder.embed_tokens

    @can_return_tuple
    @takes_either_name
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: MemoryCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        inputs_embeds: None = None,
    ) -> CausalLMOutputWithPast:
        """Logits (B, T, V) of the tokens after `input_ids` (B, T).

        attention_mask: (B, T), or of the tokens before them too, as `generate` gives it
        labels: (B, T), the input_ids themselves, -100 where no loss is wanted
        past_key_values: the cache of the tokens before
        """
        refuse_vectors(inputs_embeds)
        collects = wants_states(self.config, output_hidden_states, output_attentions)
        collected: list[Tensor] | None = [] if collects else None
        if use_cache and past_key_values is None:
            past_key_values = MemoryCache(self.config)
        padding = self.padding(input_ids, attention_mask)
        features = self.decoder(input_ids, padding, cache=past_key_values, hidden_states=collected)
        logits = self.lm_head(features)
        loss = None
        if labels is not None:
            # The outputs at padding are undefined, and predict no token.
            targets = labels[:, 1:].masked_fill(padding[:, :-1], IGNORED)
            loss = cross_entropy(logits[:, :-1], targets, num_items_in_batch)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            **named(past_key_values),
            hidden_states=None if collected is None else tuple(collected),
        )


class BoundedTransformerForMaskedLM(BoundedTransformer):
    """fairseq's RoBERTa: `roberta`, `abc_*_roberta` and those of kernels."""

    def __init__(self, config: BoundedTransformerConfig) -> None:
        super().__init__(config)
        stack = config.stack("encoder")
        self.encoder = Encoder(stack)
        head = gmat_layers.GMATConfig(hidden_size=stack.embed_dim, hidden_act=stack.activation)
        self.lm_head = gmat_layers.MaskedLMHead(head, stack.vocab_size)
        if config.share_all_embeddings:
            self._tied_weights_keys = {"lm_head.decoder.weight": "encoder.embed_tokens.weight"}
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head.decoder

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        inputs_embeds: None = None,
    ) -> MaskedLMOutput:
        """Logits (B, S, V). labels: (B, S), the masked tokens, -100 elsewhere"""
        refuse_vectors(inputs_embeds)
        collects = wants_states(self.config, output_hidden_states, output_attentions)
        out = self.encoder(input_ids, attention_mask, output_hidden_states=collects)
        logits = self.lm_head(out.last_hidden_state)
        loss = cross_entropy(logits, labels, num_items_in_batch)
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=out.hidden_states)
