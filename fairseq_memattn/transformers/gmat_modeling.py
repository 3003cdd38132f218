"""GMAT's encoder with its heads: masked words, spans as answers, and tags.

Source: Gupta and Berant, "GMAT: Global Memory Augmentation for Transformers".
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    TokenClassifierOutput,
)
from transformers.utils import can_return_tuple

from fairseq_memattn.attention.nn.global_memory import GlobalMemoryAttention
from fairseq_memattn.attention.ops.common import possibly_any
from fairseq_memattn.attention.ops.global_memory.padding import (
    reorder,
    spread_positions,
    tokens_first,
)
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.transformers.attention_weights import check_attentions
from fairseq_memattn.transformers.gmat_configuration import GMATConfig


class GMATBlockPositions(nn.Embedding):
    """Position p has the sum of two learned vectors, of p mod N and of p div N.

    weight: (pad + 1 + N, E), the vector of padding and those of p mod N
    blocks: (maximum / N rounded up, E)
    """

    def __init__(self, config: GMATConfig) -> None:
        pad, self.block = config.pad_token_id, config.position_block
        super().__init__(pad + 1 + self.block, config.hidden_size, pad)
        blocks = -(-config.max_position_embeddings // self.block)
        self.blocks = nn.Parameter(torch.zeros(blocks, config.hidden_size))

    def forward(  # type: ignore[override]
        self, positions: Tensor, padding: Tensor
    ) -> Tensor:
        """positions: (B, S), from 0; padding: (B, S), True at padding. Returns (B, S, E)."""
        assert self.padding_idx is not None
        rows = positions % self.block + self.padding_idx + 1
        of_block = nn.functional.embedding(positions // self.block, self.blocks)
        return super().forward(rows.masked_fill(padding, self.padding_idx)) + of_block


class GMATSinusoidalPositions(nn.Module):
    """fairseq's sinusoidal positions, whose first position is pad + 1."""

    def __init__(self, config: GMATConfig) -> None:
        super().__init__()
        self.embed_dim, self.first = config.hidden_size, config.pad_token_id + 1

    def forward(self, positions: Tensor, padding: Tensor) -> Tensor:
        """positions: (B, S), from 0; padding: (B, S), True at padding. Returns (B, S, E)."""
        half = self.embed_dim // 2
        exponents = torch.arange(half, dtype=torch.float, device=positions.device)
        rates = torch.exp(exponents * -(math.log(10000) / (half - 1)))
        angles = (positions + self.first).float().unsqueeze(2) * rates
        vectors = torch.cat([angles.sin(), angles.cos()], dim=2)
        vectors = nn.functional.pad(vectors, (0, self.embed_dim % 2))
        return vectors.masked_fill(padding.unsqueeze(2), 0.0)


POSITIONS = {"blocks": GMATBlockPositions, "sinusoidal": GMATSinusoidalPositions}


class GMATLayer(GradientCheckpointingLayer):
    """A layer over the memory and the tokens, which share the feed-forward layer and the norms.

    number: of the layer, from 0
    """

    def __init__(self, config: GMATConfig, number: int) -> None:
        super().__init__()
        size, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self.self_attn = GlobalMemoryAttention(
            size, config.num_attention_heads, **config.attention_options(number)
        )
        self.self_attn_layer_norm = nn.LayerNorm(size, eps)
        self.fc1, self.fc2 = nn.Linear(size, inner), nn.Linear(inner, size)
        self.final_layer_norm = nn.LayerNorm(size, eps)
        self.activation_fn = ACT2FN[config.hidden_act]
        self.slots, self.normalize_before = config.memory_slots, config.normalize_before
        self.dropout, self.activation_dropout = (
            config.hidden_dropout_prob,
            config.activation_dropout,
        )

    def forward(self, states: Tensor, padding: Tensor | None) -> Tensor:
        """states: (B, M + S, E), the memory first; padding: (B, S), on the right. As states."""
        states = self.residual(
            self.self_attn_layer_norm, states, lambda x: self._attend(x, padding)
        )
        return self.residual(self.final_layer_norm, states, self.feed_forward)

    def _attend(self, states: Tensor, padding: Tensor | None) -> Tensor:
        memory, x = states[:, : self.slots], states[:, self.slots :]
        x, memory = self.self_attn.attend(x, memory, padding)
        return torch.cat([memory, x], dim=1)

    def residual(self, norm: nn.Module, x: Tensor, block: Any) -> Tensor:
        """A block with its residual connection, and its norm before or after it."""
        out = block(norm(x) if self.normalize_before else x)
        out = x + dropout(out, self.dropout, self.training)
        return out if self.normalize_before else norm(out)

    def feed_forward(self, x: Tensor) -> Tensor:
        """(B, T, E), as x."""
        hidden = self.activation_fn(self.fc1(x))
        out: Tensor = self.fc2(dropout(hidden, self.activation_dropout, self.training))
        return out


class GMATHead(nn.Module):
    """RoBERTa's head for masked words, with any number of outputs."""

    def __init__(self, config: GMATConfig, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation_fn = ACT2FN[config.hidden_act]
        self.layer_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, outputs)

    def forward(self, features: Tensor) -> Tensor:
        """(B, S, E) to (B, S, outputs)."""
        out: Tensor = self.decoder(self.layer_norm(self.activation_fn(self.dense(features))))
        return out


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
        if isinstance(module, GMATBlockPositions):
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


class GMATModel(GMATPreTrainedModel):
    """An encoder whose tokens attend sparsely to one another and to a global memory.

    With `compress_after` the encoder drops the tokens' states after that many layers. The next
    `memory_layers` layers work on the memory alone. The remaining layers compute states from the
    memory and the positions.
    """

    def __init__(self, config: GMATConfig) -> None:
        super().__init__(config)
        size = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, size, config.pad_token_id)
        self.embed_scale = math.sqrt(size) if config.scale_embedding else 1.0
        positions = POSITIONS.get(config.position_embedding_type)
        self.embed_positions = positions(config) if positions else None
        self.layernorm_embedding = (
            nn.LayerNorm(size, config.layer_norm_eps) if config.embedding_layer_norm else None
        )
        self.layers = nn.ModuleList(
            GMATLayer(config, number) for number in range(config.num_hidden_layers)
        )
        self.layer_norm = (
            nn.LayerNorm(size, config.layer_norm_eps) if config.normalize_before else None
        )
        slots = config.memory_slots
        self.memory_tokens = nn.Embedding(slots, size) if slots else None
        self.post_init()

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
        memory_words: (B, Q), the `words` of `first_memory`
        """
        check_attentions(self.config, output_attentions)
        padding = self.padding_of(input_ids, attention_mask, inputs_embeds)
        x = self.embedded(input_ids, token_positions(padding), padding, inputs_embeds)
        # Chunks are cut from the tokens, so that they do not depend on the batch's longest input.
        is_padded = torch.compiler.is_compiling() or possibly_any(padding)
        order = tokens_first(padding) if is_padded else None
        mask = None
        if order is not None:
            x, mask = reorder(x, order), reorder(padding, order)
            x = x.masked_fill(mask.unsqueeze(2), 0.0)
        memory, hidden = self._encode(
            self.first_memory((~padding).sum(dim=1), memory_words), x, mask
        )
        if order is not None:
            back = order.argsort(dim=1)
            hidden = [reorder(state, back) for state in hidden]
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return GMATModelOutput(
            last_hidden_state=hidden[-1],
            hidden_states=tuple(hidden) if output_hidden_states else None,
            memory=memory,
            attention_mask=~padding,
        )

    def compress(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The memories (B, M, E) of sequences (B, S), with padding anywhere.

        Raises MemAttnError for a model without `compress_after`.
        """
        self._check_compresses()
        padding = self.padding_of(input_ids, attention_mask)
        x = self.embedded(input_ids, token_positions(padding), padding)
        order = tokens_first(padding)
        x, mask = reorder(x, order), reorder(padding, order)
        x = x.masked_fill(mask.unsqueeze(2), 0.0)
        return self._compress(self.first_memory((~padding).sum(dim=1)), x, mask)[0]

    def decompress(self, memory: Tensor, lengths: Tensor) -> Tensor:
        """The last states of sequences that are stored as memories.

        memory: (B, M, E), from `compress`; lengths: (B,), of the sequences

        Returns (B, longest, E). Values beyond a sequence's length are undefined.

        Raises MemAttnError for a model without `compress_after`, and for memories of another
        number of vectors.
        """
        self._check_compresses()
        if memory.shape[1] != self.config.memory_slots:
            raise MemAttnError(
                f"`memory` must have {self.config.memory_slots} vectors (`memory_slots`), but has "
                f"{memory.shape[1]}"
            )
        positions = torch.arange(int(lengths.max()), device=lengths.device)
        return self._decompress(memory, positions >= lengths.unsqueeze(1))[1][-1]

    def padding_of(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """Where the padding is, (B, S).

        Raises MemAttnError without input, with two kinds of input, and for more positions than the
        model has.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise MemAttnError("the model needs either `input_ids` or `inputs_embeds`")
        given = inputs_embeds if input_ids is None else input_ids
        assert given is not None
        if attention_mask is not None:
            padding = attention_mask == 0
        elif input_ids is not None:
            padding = input_ids == self.config.pad_token_id
        else:
            padding = torch.zeros(given.shape[:2], dtype=torch.bool, device=given.device)
        self.check_length(padding.shape[1])
        return padding

    def check_length(self, length: int) -> None:
        """Raises MemAttnError for more positions than the model has."""
        most = self.config.max_position_embeddings
        if self.config.position_embedding_type == "blocks" and length > most:
            raise MemAttnError(
                f"a sequence must have at most {most} tokens (`max_position_embeddings`), but has "
                f"{length}"
            )

    def embedded(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        padding: Tensor,
        inputs_embeds: Tensor | None = None,
        added: Tensor | None = None,
    ) -> Tensor:
        """The embeddings (B, S, E) that enter the first layer.

        positions, padding: (B, S), of the tokens
        added: (E,), a vector that is added to every embedding
        """
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        x = self.embed_scale * x
        if added is not None:
            x = x + added
        if self.embed_positions is not None:
            x = x + self.embed_positions(positions, padding).to(x.dtype)
        return self._normed_embedding(x)

    def first_memory(self, lengths: Tensor, words: Tensor | None = None) -> Tensor:
        """The memory that enters the first layer, (B, M, E).

        lengths: (B,), the tokens of each sequence
        words: (B, Q), whose embeddings replace the first Q learned vectors, except at padding; of
            more than M words, the first M are used (section 4.4: the words of the question)
        """
        if self.memory_tokens is None:
            weight = self.embed_tokens.weight
            return weight.new_zeros(len(lengths), 0, weight.shape[1])
        slots = self.config.memory_slots
        x = self.embed_scale * self.memory_tokens.weight.expand(len(lengths), -1, -1)
        if self.config.memory_positions:
            assert self.embed_positions is not None
            positions = spread_positions(lengths, slots)
            x = x + self.embed_positions(positions, torch.zeros_like(positions).bool()).to(x.dtype)
        if words is not None:
            words = words[:, :slots]
            given = self.embed_scale * self.embed_tokens(words)
            learned, rest = x.split([words.shape[1], slots - words.shape[1]], dim=1)
            is_word = words.ne(self.config.pad_token_id).unsqueeze(2)
            x = torch.cat([torch.where(is_word, given, learned), rest], dim=1)
        return self._normed_embedding(x)

    def _normed_embedding(self, x: Tensor) -> Tensor:
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return dropout(x, self.config.hidden_dropout_prob, self.training)

    def _encode(
        self, memory: Tensor, x: Tensor, padding: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """memory: (B, M, E), the first; x: (B, S, E); padding: (B, S), on the right.

        Returns the last memory (B, M, E), and x and the states (B, S, E) after each layer.
        """
        if not self.config.compress_after:
            return self._normed(*self._run(self.layers, memory, x, padding))
        memory, below = self._compress(memory, x, padding)
        if padding is None:
            padding = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        memory, above = self._decompress(memory, padding)
        return memory, below + above[1:]

    def _compress(
        self, memory: Tensor, x: Tensor, padding: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        after = self.config.compress_after
        alone = self.layers[after : after + self.config.memory_layers]
        memory, hidden = self._run(self.layers[:after], memory, x, padding)
        memory, _ = self._run(alone, memory, x[:, :0], None)
        return memory, hidden

    def _decompress(self, memory: Tensor, padding: Tensor) -> tuple[Tensor, list[Tensor]]:
        assert self.embed_positions is not None
        first = self.config.compress_after + self.config.memory_layers
        x = self.embed_positions(token_positions(padding), padding).to(memory.dtype)
        x = self._normed_embedding(x).masked_fill(padding.unsqueeze(2), 0.0)
        return self._normed(*self._run(self.layers[first:], memory, x, padding))

    def _run(
        self, layers: Any, memory: Tensor, x: Tensor, padding: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        slots, hidden = memory.shape[1], [x]
        states = torch.cat([memory, x], dim=1)
        drop = self.config.layerdrop if self.training else 0.0
        for layer in layers:
            if not drop or torch.rand(()) >= drop:
                states = layer(states, padding)
            hidden.append(states[:, slots:])
        return states[:, :slots], hidden

    def _normed(self, memory: Tensor, hidden: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """With the final norm of `normalize_before`, of the memory and the last states."""
        if self.layer_norm is None:
            return memory, hidden
        return self.layer_norm(memory), [*hidden[:-1], self.layer_norm(hidden[-1])]

    def _check_compresses(self) -> None:
        if not self.config.compress_after:
            raise MemAttnError(
                "the model has `compress_after` 0, so its memory is not a compressed form of its "
                "input"
            )


def token_positions(padding: Tensor) -> Tensor:
    """The position of each token, from 0, without counting padding: (B, S)."""
    return ((~padding).cumsum(dim=1) - 1).clamp(min=0)


class GMATForMaskedLM(GMATPreTrainedModel):
    """The encoder with the head for masked words."""

    _tied_weights_keys = {"lm_head.decoder.weight": "gmat.embed_tokens.weight"}

    def __init__(self, config: GMATConfig) -> None:
        super().__init__(config)
        self.gmat = GMATModel(config)
        self.lm_head = GMATHead(config, config.vocab_size)
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
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """As `GMATModel.forward`. labels: (B, S), -100 where there is no loss."""
        check_attentions(self.config, output_attentions)
        out = self.gmat(
            input_ids,
            attention_mask,
            inputs_embeds,
            memory_words,
            output_hidden_states,
            return_dict=True,
        )
        logits = self.lm_head(out.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs
            )
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=out.hidden_states)


class GMATForTokenClassification(GMATPreTrainedModel):
    """The encoder with a head for tags."""

    def __init__(self, config: GMATConfig) -> None:
        super().__init__(config)
        self.gmat = GMATModel(config)
        self.tagger = GMATHead(config, config.num_labels or 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        memory_words: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """As `GMATModel.forward`. labels: (B, S), -100 where there is no loss."""
        check_attentions(self.config, output_attentions)
        out = self.gmat(
            input_ids,
            attention_mask,
            inputs_embeds,
            memory_words,
            output_hidden_states,
            return_dict=True,
        )
        logits = self.tagger(out.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config, **kwargs)
        return TokenClassifierOutput(loss=loss, logits=logits, hidden_states=out.hidden_states)


class GMATForQuestionAnswering(GMATPreTrainedModel):
    """The encoder with linear scores of each token as the answer's first and last token.

    An input is `<s> question </s> context </s>`. With `supporting_facts` in the configuration,
    each token has two more scores, of the tags 0 and 1.
    """

    def __init__(self, config: GMATConfig) -> None:
        super().__init__(config)
        self.gmat = GMATModel(config)
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
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> GMATQuestionAnsweringOutput:
        """As `GMATModel.forward`. start_positions, end_positions: (B,), of the answer.

        memory_words: (B, Q); None is the question where the configuration has `question_memory`
        """
        check_attentions(self.config, output_attentions)
        if self.config.question_memory and memory_words is None and input_ids is not None:
            memory_words = self.question_words(input_ids, attention_mask)
        out = self.gmat(
            input_ids,
            attention_mask,
            inputs_embeds,
            memory_words,
            output_hidden_states,
            return_dict=True,
        )
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
        padding = self.gmat.padding_of(input_ids, attention_mask)
        others = after | padding | input_ids.eq(self.config.bos_token_id)
        words = input_ids.masked_fill(others, self.config.pad_token_id)
        return reorder(words, tokens_first(others))
