"""The decoder of today in transformers' format: Llama's shape, with a control for each layer."""

from typing import Any

from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedConfig
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils.generic import can_return_tuple

from fairseq_memattn.attention.ops.common import possibly_any
from fairseq_memattn.attention.ops.rotary import Rotary
from fairseq_memattn.attention.step_graph import StepGraph, wants_graphs
from fairseq_memattn.networks import decoder
from fairseq_memattn.networks.decoder import FIRST_AND_LAST, DecoderSizes, DecoderState
from fairseq_memattn.transformers.arguments import (
    CACHE,
    NEW,
    OLD,
    named,
    refuse_cache,
    takes_either_name,
    wants_states,
)
from fairseq_memattn.transformers.bounded_model import BoundedModel, OwnCache
from fairseq_memattn.transformers.cache import MemoryCache, MemoryLayer
from fairseq_memattn.transformers.labels import IGNORED, cross_entropy

# The fields of `DecoderSizes` by those of the configuration.
SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "embed_dim",
    "intermediate_size": "ffn_dim",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim",
    "hidden_act": "activation",
    "rms_norm_eps": "norm_epsilon",
    "qkv_bias": "qkv_bias",
    "qk_norm": "qk_norm",
    "tie_word_embeddings": "tied",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "max_position_embeddings": "max_positions",
    "initializer_range": "deviation",
}


# Fields of Llama's configuration that would change the model, by what has their place.
FOREIGN = {
    **dict.fromkeys(("rope_theta", "rope_parameters", "rope_scaling"), "`rotary_base`"),
    "attention_bias": "`qkv_bias`",
    "mlp_bias": "no field",
}


class BoundedDecoderConfig(PreTrainedConfig):
    """The sizes of a decoder, by the names of transformers' Llama, and the memory of each layer.

    controls: of the layers, the lowest first, beginning again after the last one: the arguments
        `control`, `slots` and others of `ABCAttention`, or "softmax". By default the first 4 and
        the last 60 tokens
    intermediate_size: None is 8 / 3 of `hidden_size`, rounded up to 32s
    num_key_value_heads, head_dim: None are `num_attention_heads`, and the heads' part of
        `hidden_size`
    rotary_base: of rotary positions; None has none
    rotary_frequencies: in the place of those of the base, as `Rotary` takes them
    qkv_bias, qk_norm, dropout: as in `networks.DecoderSizes`

    Raises ValueError for sizes out of range, and for fields of Llama's with another name here.
    """

    model_type = "memattn_decoder"
    keys_to_ignore_at_inference = [OLD, NEW]

    vocab_size: int = 32000
    hidden_size: int = 512
    intermediate_size: int | None = None
    num_hidden_layers: int = 8
    num_attention_heads: int = 8
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    controls: list[Any] | None = None
    rotary_base: float | None = 10000.0
    rotary_frequencies: list[float] | None = None
    rms_norm_eps: float = 1e-6
    qkv_bias: bool = False
    qk_norm: bool = False
    dropout: float = 0.0
    attention_dropout: float = 0.0
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None
    tie_word_embeddings: bool = True
    use_cache: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        for name in filter(kwargs.get, FOREIGN):
            raise ValueError(f"`{name}` is no field here; {FOREIGN[name]} has its place")
        if self.controls is None:
            self.controls = [dict(FIRST_AND_LAST)]
        super().__post_init__(**kwargs)
        self.intermediate_size = self.sizes().inner_dim

    def sizes(self) -> DecoderSizes:
        """Those of the network."""
        rotary, listed = None, self.rotary_frequencies
        if self.rotary_base is not None:
            rotary = Rotary(self.rotary_base, None if listed is None else tuple(listed))
        given = {ours: getattr(self, theirs) for theirs, ours in SIZES.items()}
        return DecoderSizes(**given, controls=tuple(self.controls or ()), rotary=rotary)


class DecoderLayer(GradientCheckpointingLayer, decoder.DecoderLayer):
    """A layer of which the backward pass may compute the states again."""

    def step_from(self, state: Any, x: Tensor, given: dict[str, Any]) -> tuple[Tensor, Any]:
        """state: of the attention, in a CUDA graph, or else a `MemoryLayer`, which changes"""
        if isinstance(state, MemoryLayer):
            return state.step(self.self_attn, x, **given), state
        return super().step_from(state, x, given)


class BoundedDecoder(BoundedModel):
    """What the models share."""

    config_class = BoundedDecoderConfig
    base_model_prefix = "model"
    _no_split_modules = ["DecoderLayer"]

    def _init_weights(self, module: nn.Module) -> None:
        decoder.draw(module, self.config.initializer_range)


class BoundedDecoderModel(decoder.Decoder, BoundedDecoder):
    """The network `Decoder` as a model of transformers."""

    def __init__(self, config: BoundedDecoderConfig) -> None:
        BoundedDecoder.__init__(self, config)
        decoder.Decoder.__init__(self, config.sizes())
        self.post_init()

    def build_layer(self, number: int) -> nn.Module:
        return DecoderLayer(self.sizes, number)

    @can_return_tuple
    @takes_either_name
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: MemoryCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> BaseModelOutputWithPast:
        """The states (B, T, E) after `input_ids` (B, T).

        attention_mask: (B, T), or of the tokens before them too, 0 at padding, on either side
        position_ids: (B, T), of rotary positions; None are counted, without padding
        past_key_values: the cache of the tokens before
        inputs_embeds: (B, T, E), in the place of `input_ids`

        Raises ValueError without input, with two kinds of input, for a mask of another shape, and
        for a cache in training with gradient checkpoints.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("exactly one of `input_ids` and `inputs_embeds` must be given.")
        if use_cache and past_key_values is None:
            past_key_values = MemoryCache(self.config)
        refuse_cache(past_key_values, self.layers)
        collects = wants_states(self.config, output_hidden_states, output_attentions)
        collected: list[Tensor] | None = [] if collects else None
        x: Any = inputs_embeds if input_ids is None else self.embed_tokens(input_ids)
        mask = padding(attention_mask, x.shape[1])
        given: Any = {"embeddings": x, "positions": position_ids, "hidden_states": collected}
        if past_key_values is None:
            out = super().forward(None, mask, **given)
        else:
            out = self._read(past_key_values, mask, given)
        return BaseModelOutputWithPast(
            last_hidden_state=out,
            hidden_states=None if collected is None else tuple(collected),
            **named(past_key_values),
        )

    def _read(self, cache: MemoryCache, mask: Tensor | None, given: dict[str, Any]) -> Tensor:
        """The states after further tokens, which the cache takes."""
        x, layers = given["embeddings"], cache.layers
        is_step = x.shape[1] == 1 and given["hidden_states"] is None and wants_graphs(x)
        if is_step and cache.read is not None and not cache.records:
            cache.graph = cache.graph or StepGraph(self._step_of_tensors)
            state = DecoderState(tuple(layer.state for layer in layers), cache.read)
            out, after = cache.graph(state, x, mask, given["positions"])
            for layer, kept in zip(layers, after.layers, strict=True):
                layer.state, layer.length = kept, layer.length + 1
        else:
            state = DecoderState(tuple(layers), cache.started(x.shape[0], x.device))
            out, after = self.step(None, state, mask, **given)
        cache.read = after.read
        return out

    def _step_of_tensors(
        self, state: DecoderState, x: Tensor, mask: Tensor | None, positions: Tensor | None
    ) -> tuple[Tensor, DecoderState]:
        return self.step(None, state, mask, embeddings=x, positions=positions)


class BoundedDecoderForCausalLM(  # type: ignore[misc]
    BoundedDecoder, OwnCache, GenerationMixin
):
    """The decoder as a language model."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: BoundedDecoderConfig) -> None:
        super().__init__(config)
        self.model = BoundedDecoderModel(config)
        self.lm_head = decoder.output_projection(config.sizes())
        self.post_init()

    @can_return_tuple
    @takes_either_name
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: MemoryCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Logits (B, T, V) of the tokens after `input_ids` (B, T).

        labels: (B, T), the input_ids themselves, -100 where no loss is wanted
        logits_to_keep: of the last so many positions, or of those at these indices; 0 is all
        num_items_in_batch: what the sum of the losses is divided by; None is the number of labels
        kwargs, and the other arguments: of `BoundedDecoderModel.forward`
        """
        out = self.model(
            *(input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache),
            return_dict=True,
            **kwargs,
        )
        states = out.last_hidden_state
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(states[:, kept])
        loss = None
        if labels is not None:
            targets, mask = labels[:, 1:], padding(attention_mask, labels.shape[1])
            if mask is not None:  # the outputs at padding are undefined, and predict no token
                targets = targets.masked_fill(mask[:, :-1], IGNORED)
            loss = cross_entropy(logits[:, :-1], targets, num_items_in_batch)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            hidden_states=out.hidden_states,
            **named(getattr(out, CACHE)),
        )


def padding(attention_mask: Tensor | None, length: int) -> Tensor | None:
    """The mask (B, T) of the last tokens, True at padding; None where there is none."""
    if attention_mask is None:
        return None
    if attention_mask.dim() != 2:
        raise ValueError(
            "`attention_mask` must be (B, T), with 0 at padding, but is "
            f"{tuple(attention_mask.shape)} instead."
        )
    mask = attention_mask[:, -length:].eq(0)
    return mask if possibly_any(mask) else None
