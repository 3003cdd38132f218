"""The encoder and the decoder, without the heads of a task."""

import math
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from fairseq_memattn.attention.controls.options import Sizes
from fairseq_memattn.attention.controls.registry import control_class
from fairseq_memattn.attention.nn.control_pool import ControlPool, ControlSpec
from fairseq_memattn.attention.step_graph import StepGraph, wants_graphs
from fairseq_memattn.networks.positions import SinusoidalPositions, marian_sinusoids
from fairseq_memattn.transformers.adaptive_vocabulary import AdaptiveInput
from fairseq_memattn.transformers.arguments import recomputes, refuse_cache, wants_states
from fairseq_memattn.transformers.cache import MemoryCache
from fairseq_memattn.transformers.transformer_config import ControlConfig, StackConfig
from fairseq_memattn.transformers.transformer_layers import DecoderLayer, EncoderLayer


class LearnedPositions(nn.Embedding):
    """A vector for each position, of which fairseq leaves the first pad_token_id + 1 unused."""

    def __init__(self, max_positions: int, embed_dim: int, pad_token_id: int) -> None:
        super().__init__(max_positions + pad_token_id + 1, embed_dim, pad_token_id)
        self.first = pad_token_id + 1

    def forward(self, positions: Tensor, padding: Tensor) -> Tensor:  # type: ignore[override]
        """(B, T, E) of positions (B, T), from 0. Raises IndexError beyond the last, on a CPU."""
        return super().forward((positions + self.first).masked_fill(padding, self.first - 1))


def pool(config: StackConfig, control: ControlConfig | None, kind: str) -> ControlPool | None:
    """The controls of one kind of attention: "causal", "cross" or "encoder"."""
    if control is None:
        return None
    sizes = Sizes(
        embed_dim=config.source_dim if kind == "cross" else config.embed_dim,
        slots=control.slots,
        heads=control.heads,
        attention_heads=config.heads,
        head_dim=config.embed_dim // config.heads,
        max_positions=control.max_positions,
        kind=kind,
    )
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in control.options.items()
    }
    options = control_class(control.name).Options(**given)
    return ControlPool([ControlSpec(control.name, sizes, options)], tied=control.tied)


def embeddings(config: StackConfig) -> nn.Module:
    """Of the tokens, by bands if the configuration has an adaptive input."""
    adaptive = config.adaptive_input
    if adaptive is None:
        return nn.Embedding(config.vocab_size, config.input_dim, config.pad_token_id)
    return AdaptiveInput(
        adaptive["cutoffs"], adaptive["initial_dim"], adaptive["factor"], config.input_dim
    )


class Stack(nn.Module):
    """The embeddings and the layers of an encoder or a decoder."""

    layers: nn.ModuleList

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = embeddings(config)
        self.scale = math.sqrt(config.embed_dim) if config.scale_embeddings else 1.0
        self.embed_positions: Any = None
        if config.positions == "sinusoidal":
            self.embed_positions = SinusoidalPositions(config.embed_dim, config.pad_token_id + 1)
        elif config.positions == "marian":
            self.embed_positions = SinusoidalPositions(config.embed_dim, 0, marian_sinusoids)
        elif config.positions == "learned":
            self.embed_positions = LearnedPositions(
                config.max_positions, config.embed_dim, config.pad_token_id
            )
        norms = (config.norm_embeddings, config.norm_output)
        self.layernorm_embedding, self.layer_norm = (
            nn.LayerNorm(config.embed_dim) if wanted else None for wanted in norms
        )
        self.dropout = nn.Dropout(config.dropout)

    def embed(
        self, tokens: Tensor, padding: Tensor | None, start: Tensor, project: Any = None
    ) -> Tensor:
        """(B, T, E) of tokens (B, T). start: (B,), how many each row has read before."""
        config, words = self.config, tokens
        if config.start_token_id is not None:
            words = words.masked_fill(words.eq(config.start_token_id), config.pad_token_id)
        x = self.scale * self.embed_tokens(words)
        x = x if project is None else project(x)
        if self.embed_positions is not None:
            if padding is None:
                padding = torch.zeros_like(tokens, dtype=torch.bool)
            positions = (~padding).cumsum(dim=1) - 1 + start.unsqueeze(1)
            x = x + self.embed_positions(positions, padding).to(x.dtype)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout(x)

    def finished(self, x: Tensor, hidden_states: list[Tensor] | None) -> Tensor:
        """The last states, normalised if the stack is, which `hidden_states` takes too."""
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        if hidden_states is not None:
            hidden_states.append(x)
        return x

    def bind(self, attention: str, controls: ControlPool | None) -> None:
        """Gives the layers of a replica of `nn.DataParallel` the controls of the replica.

        torch replicates modules, but not the references of the layers to the controls.

        attention: name of the layers' attention that the controls are for
        """
        if controls is None or not getattr(self, "_is_replica", False):
            return
        for number, layer in enumerate(self.layers):
            getattr(layer, attention).layer_control = controls.for_layer(number)

    def sharing(self, controls: ControlPool | None) -> Any:
        """A context in which the layers share what a control computes once.

        Raises ValueError with gradient checkpoints and a control that needs it.
        """
        if controls is None:
            return nullcontext()
        if not recomputes(self.layers):
            return controls.forward_pass()
        for spec in controls.specs:
            if spec is not None and control_class(spec.name).passes_memory:
                raise ValueError(
                    f"gradient checkpointing does not work with the control {spec.name!r}, whose "
                    "layers pass their memory to the next."
                )
        return nullcontext()

    def check_length(self, length: int) -> None:
        """Raises ValueError for more positions than the embeddings have."""
        if self.config.positions == "learned" and length > self.config.max_positions:
            raise ValueError(
                f"the model has {self.config.max_positions} learned positions, but the text has "
                f"{length}."
            )


class Encoder(Stack):
    """fairseq's encoder."""

    main_input_name = "input_ids"  # which `generate` asks for

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.controls = pool(config, config.full, "encoder")
        self.layers = nn.ModuleList(
            EncoderLayer(config, None if self.controls is None else self.controls.for_next_layer())
            for _ in range(config.layers)
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """The states (B, S, E) of tokens (B, S), with padding on either side.

        attention_mask: (B, S), 0 at padding; None is found from the padding symbol
        output_hidden_states: return the embeddings and the states after each layer, the last ones
            normalised
        output_attentions: must not be True

        Raises ValueError for more positions than the model has.
        """
        hidden_states: list[Tensor] | None = []
        if not wants_states(self.config, output_hidden_states, output_attentions):
            hidden_states = None
        self.bind("self_attn", self.controls)
        self.check_length(input_ids.shape[1])
        if attention_mask is None:
            attention_mask = input_ids.ne(self.config.pad_token_id)
        padding = attention_mask.eq(0)
        start = torch.zeros(input_ids.shape[0], dtype=torch.long, device=input_ids.device)
        x = self.embed(input_ids, padding, start).masked_fill(padding.unsqueeze(2), 0.0)
        with self.sharing(self.controls):
            for layer in self.layers:
                if hidden_states is not None:
                    hidden_states.append(x)
                x = layer(x, padding)
        x = self.finished(x, hidden_states)
        states = None if hidden_states is None else tuple(hidden_states)
        return BaseModelOutput(last_hidden_state=x, hidden_states=states)


class Decoder(Stack):
    """fairseq's decoder, with cross attention if `source_dim` is given."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.causal_controls = pool(config, config.causal, "causal")
        self.cross_controls = pool(config, config.cross, "cross")
        pools = (self.causal_controls, self.cross_controls)
        self.layers = nn.ModuleList(
            DecoderLayer(config, *(None if x is None else x.for_next_layer() for x in pools))
            for _ in range(config.layers)
        )
        self.project_in_dim = self.project_out_dim = None
        if config.input_dim != config.embed_dim:
            self.project_in_dim = nn.Linear(config.input_dim, config.embed_dim, bias=False)
        if config.output_dim != config.embed_dim:
            self.project_out_dim = nn.Linear(config.embed_dim, config.output_dim, bias=False)

    def forward(
        self,
        tokens: Tensor,
        padding: Tensor | None,
        source: Tensor | None = None,
        source_padding: Tensor | None = None,
        cache: MemoryCache | None = None,
        hidden_states: list[Tensor] | None = None,
    ) -> Tensor:
        """(B, T, output_dim) of tokens (B, T), which follow those that the cache has read.

        padding: (B, T), True at padding, on either side
        source: (B, S, source_dim), and the mask of its padding (B, S)
        hidden_states: a list that takes the embeddings and the states after each layer, the last
            ones normalised

        Raises ValueError for more positions than the model has, and for a cache in training with
        gradient checkpoints.
        """
        refuse_cache(cache, self.layers)
        self.bind("self_attn", self.causal_controls)
        self.bind("encoder_attn", self.cross_controls)
        length = tokens.shape[1]
        self.check_length(length if cache is None else cache.get_seq_length() + length)
        is_step = length == 1 and hidden_states is None and wants_graphs(tokens)
        if is_step and cache is not None and cache.read is not None and not cache.records:
            return self._replayed(tokens, padding, cache)
        return self._decoded(tokens, padding, source, source_padding, cache, hidden_states)

    def _replayed(self, tokens: Tensor, padding: Tensor | None, cache: MemoryCache) -> Tensor:
        """`_decoded` for one token after others, as a CUDA graph that the cache keeps."""
        cache.graph = cache.graph or StepGraph(self._step)
        x, cache.state = cache.graph(cache.state, tokens, padding)
        for layer in cache.layers:
            layer.length += 1
        return x

    def _step(self, state: Any, tokens: Tensor, padding: Tensor | None) -> tuple[Tensor, Any]:
        cache = MemoryCache(len(self.layers))
        cache.state = state
        x = self._decoded(tokens, padding, None, None, cache, None)
        return x, cache.state

    def _decoded(
        self,
        tokens: Tensor,
        padding: Tensor | None,
        source: Tensor | None,
        source_padding: Tensor | None,
        cache: MemoryCache | None,
        hidden_states: list[Tensor] | None,
    ) -> Tensor:
        batch, length = tokens.shape
        if cache is None:
            start = torch.zeros(batch, dtype=torch.long, device=tokens.device)
        else:
            start = cache.started(batch, tokens.device)
            read = length if padding is None else (~padding).sum(dim=1)
            cache.read = start + read
        x = self.embed(tokens, padding, start, self.project_in_dim)
        with self.sharing(self.cross_controls):
            for number, layer in enumerate(self.layers):
                if hidden_states is not None:
                    hidden_states.append(x)
                of_layer = None if cache is None else cache.layers[number]
                x = layer(x, padding, source, source_padding, of_layer)
        x = self.finished(x, hidden_states)
        return x if self.project_out_dim is None else self.project_out_dim(x)
