"""GMAT's models in transformers' format: masked words, spans as answers, and tags."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    TokenClassifierOutput,
)
from transformers.utils import can_return_tuple

from fairseq_memattn.attention.ops.blocks import reorder, tokens_first
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.networks import gmat, gmat_layers
from fairseq_memattn.networks.blocks import move_to_end
from fairseq_memattn.networks.gmat_layers import MaskedLMHead
from fairseq_memattn.networks.positions import BlockPositions
from fairseq_memattn.transformers.arguments import wants_states


class GMATConfig(PreTrainedConfig, gmat_layers.GMATConfig):
    """The configuration of an encoder with a global memory, and of its heads.

    The other options are those of the network.

    question_memory: whether the words of the question replace the first memory vectors in
        `GMATForQuestionAnswering`
    supporting_facts: whether `GMATForQuestionAnswering` tags supporting facts too

    Raises MemAttnError for values that do not fit together.
    """

    model_type = "memattn_gmat"

    initializer_range: float = 0.02
    question_memory: bool = False
    supporting_facts: bool = False
    bos_token_id: int = 0
    eos_token_id: int = 2
    mask_token_id: int | None = None
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        gmat_layers.GMATConfig.__post_init__(self)


class GMATLayer(GradientCheckpointingLayer, gmat_layers.GMATEncoderLayer):
    """A layer of which the backward pass may compute the states again."""


class GMATPreTrainedModel(PreTrainedModel):
    """Initialises weights as BERT does, and loads and saves them."""

    config: GMATConfig
    base_model_prefix = "gmat"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["GMATLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, BlockPositions):
            init.zeros_(module.blocks)


@dataclass
class GMATModelOutput(BaseModelOutput):
    """The encoder's output.

    last_hidden_state: (B, S, E), undefined at padding
    hidden_states: before the first layer and after each layer, without the layers that work on the
        memory alone
    memory: (B, M, E), after the last layer
    attention_mask: (B, S), False at padding
    """

    memory: Tensor | None = None
    attention_mask: Tensor | None = None


@dataclass
class GMATQuestionAnsweringOutput(QuestionAnsweringModelOutput):
    """fact_logits: (B, S, 2), of the tags 0 and 1 of supporting facts; None without them."""

    fact_logits: Tensor | None = None


class GMATModel(gmat.GMATEncoder, GMATPreTrainedModel):
    """The network `GMATEncoder` as a model of transformers."""

    config: GMATConfig

    def __init__(self, config: GMATConfig) -> None:
        GMATPreTrainedModel.__init__(self, config)
        gmat.GMATEncoder.__init__(self, config)
        # The order of the optimiser's states.
        move_to_end(self, "layernorm_embedding", "layers", "layer_norm", "memory_tokens")
        self.post_init()

    def build_layer(self, number: int) -> nn.Module:
        return GMATLayer(self.config, number)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        memory_words: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> GMATModelOutput:
        """input_ids: (B, S), with padding anywhere
        attention_mask: (B, S), 0 at padding; None where `input_ids` has the padding symbol
        inputs_embeds: (B, S, E), instead of input_ids
        memory_words: (B, Q), whose embeddings replace the first memory vectors, except at padding

        Raises MemAttnError without input, with two kinds of input, and for more positions than the
        model has.
        """
        collects = wants_states(self.config, output_hidden_states, output_attentions)
        if (input_ids is None) == (inputs_embeds is None):
            raise MemAttnError("the model needs either `input_ids` or `inputs_embeds`")
        padding = self.masked(attention_mask, input_ids, inputs_embeds)
        states, memory, hidden = super().forward(
            input_ids,
            padding,
            embeddings=inputs_embeds,
            memory_words=memory_words,
            return_hidden=collects,
        )
        return GMATModelOutput(
            last_hidden_state=states,
            hidden_states=(*hidden[:-1], states) if collects else None,
            memory=memory,
            attention_mask=~padding,
        )

    def compress(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The memories (B, M, E) of sequences (B, S), with padding anywhere.

        Raises MemAttnError for a model without `compress_after`.
        """
        return super().compress(input_ids, self.masked(attention_mask, input_ids))

    def masked(
        self, attention_mask: Tensor | None, tokens: Tensor | None, embeddings: Tensor | None = None
    ) -> Tensor:
        """Where the padding is, (B, S)."""
        if attention_mask is None:
            return self.padding_of(tokens, embeddings)
        return attention_mask == 0


class GMATWithHead(GMATPreTrainedModel):
    """An encoder, below a head."""

    def __init__(self, config: GMATConfig) -> None:
        super().__init__(config)
        self.gmat = GMATModel(config)

    def encoded(self, *inputs: Tensor | None, **kwargs: Any) -> GMATModelOutput:
        return self.gmat(*inputs, **kwargs, return_dict=True)


class GMATForMaskedLM(GMATWithHead):
    """The encoder with the head for masked words."""

    _tied_weights_keys = {"lm_head.decoder.weight": "gmat.embed_tokens.weight"}

    def __init__(self, config: GMATConfig) -> None:
        super().__init__(config)
        self.lm_head = MaskedLMHead(config, config.vocab_size)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head.decoder = new_embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        memory_words: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """As `GMATModel.forward`. labels: (B, S), -100 where there is no loss."""
        out = self.encoded(input_ids, attention_mask, inputs_embeds, memory_words, **kwargs)
        logits = self.lm_head(out.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs
            )
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=out.hidden_states)


class GMATForTokenClassification(GMATWithHead):
    """The encoder with a head for tags."""

    def __init__(self, config: GMATConfig) -> None:
        super().__init__(config)
        self.tagger = MaskedLMHead(config, config.num_labels or 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        memory_words: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """As `GMATModel.forward`. labels: (B, S), -100 where there is no loss."""
        out = self.encoded(input_ids, attention_mask, inputs_embeds, memory_words, **kwargs)
        logits = self.tagger(out.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config, **kwargs)
        return TokenClassifierOutput(loss=loss, logits=logits, hidden_states=out.hidden_states)


class GMATForQuestionAnswering(GMATWithHead):
    """The encoder with linear scores of each token as the answer's first and last token.

    An input is `<s> question </s> context </s>`. With `supporting_facts` in the configuration,
    each token has two more scores, of the tags 0 and 1.
    """

    def __init__(self, config: GMATConfig) -> None:
        super().__init__(config)
        self.span = nn.Linear(config.hidden_size, 2)
        self.facts = nn.Linear(config.hidden_size, 2) if config.supporting_facts else None
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        memory_words: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **kwargs: Any,
    ) -> GMATQuestionAnsweringOutput:
        """As `GMATModel.forward`. start_positions, end_positions: (B,), of the answer.

        memory_words: (B, Q); None is the question where the configuration has `question_memory`
        """
        if self.config.question_memory and memory_words is None and input_ids is not None:
            memory_words = self.question_words(input_ids, attention_mask)
        out = self.encoded(input_ids, attention_mask, inputs_embeds, memory_words, **kwargs)
        start, end = self.span(out.last_hidden_state).unbind(2)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(start, end, start_positions, end_positions, **kwargs)
        return GMATQuestionAnsweringOutput(
            loss=loss,
            start_logits=start,
            end_logits=end,
            hidden_states=out.hidden_states,
            fact_logits=None if self.facts is None else self.facts(out.last_hidden_state),
        )

    def question_words(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The tokens before the first `</s>`, without `<s>`: (B, S), padding on the right."""
        after = input_ids.eq(self.config.eos_token_id).cumsum(dim=1) > 0
        padding = self.gmat.masked(attention_mask, input_ids)
        others = after | padding | input_ids.eq(self.config.bos_token_id)
        words = input_ids.masked_fill(others, self.config.pad_token_id)
        return reorder(words, tokens_first(others))
