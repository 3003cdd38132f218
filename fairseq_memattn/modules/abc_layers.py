"""fairseq's transformer encoder and decoder with bounded memories instead of softmax attention."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import Tensor, nn

from fairseq_memattn.attention.controls import Sizes
from fairseq_memattn.attention.nn.control_pool import (
    ControlPool,
    ControlSpec,
    LayerControl,
    insert_pools,
)
from fairseq_memattn.attention.ops.common import is_immediate, possibly_any
from fairseq_memattn.attention.step_graph import StepGraph, wants_graphs
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.modules.abc_attention import ABCAttention
from fairseq_memattn.modules.control_flags import control_options, option_errors
from fairseq_memattn.modules.incremental import IncrementalState, all_copies, is_identity
from fairseq_memattn.modules.layer_attention import BY_FLAGS, LayerAttention, attention_of_layers
from fairseq_memattn.modules.marian import MarianPositionalEmbedding, StartEmbedding
from fairseq_memattn.networks.positions import sinusoids

GRAPH = "step graph"  # the key in fairseq's incremental state


class ABCEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's encoder layer with ABC as its self-attention."""

    def __init__(self, cfg: Any, control: LayerControl, return_fc: bool = False) -> None:
        self.layer_control = control
        super().__init__(cfg, return_fc)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        return _attention(self, cfg, cfg.encoder, self.layer_control, causal=False)


class ABCDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer with ABC as its causal attention, its cross attention, or both.

    causal_control, cross_control: None means softmax attention
    """

    def __init__(
        self,
        cfg: Any,
        no_encoder_attn: bool,
        causal_control: LayerControl | None,
        cross_control: LayerControl | None,
    ) -> None:
        self.causal_control, self.cross_control = causal_control, cross_control
        super().__init__(cfg, no_encoder_attn)

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> nn.Module:
        if self.causal_control is None:
            return super().build_self_attention(embed_dim, cfg, add_bias_kv, add_zero_attn)
        return _attention(self, cfg, cfg.decoder, self.causal_control, causal=True)

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        if self.cross_control is None:
            return super().build_encoder_attention(embed_dim, cfg)
        source_dim = cfg.encoder.embed_dim
        return _attention(
            self, cfg, cfg.decoder, self.cross_control, causal=False, source_dim=source_dim
        )


def _attention(
    layer: Any, cfg: Any, side: Any, control: LayerControl, **options: Any
) -> ABCAttention:
    return ABCAttention(
        *(layer.embed_dim, side.attention_heads, control),
        dropout=cfg.attention_dropout,
        q_noise=layer.quant_noise,
        qn_block_size=layer.quant_noise_block_size,
        **options,
    )


class ABCTransformerEncoder(TransformerEncoderBase):
    """fairseq's encoder; with `abc_encoder_slots` its self-attention is ABC.

    controls: of its layers; None without slots
    """

    controls: ControlPool | None

    def __init__(
        self, cfg: Any, dictionary: Any, embed_tokens: nn.Module, return_fc: bool = False
    ) -> None:
        # fairseq's __init__ builds the layers. Until it returns, a dictionary holds the pool.
        self._pools = {"controls": _pool(cfg, _spec(cfg, "encoder"))}
        super().__init__(cfg, dictionary, embed_tokens, return_fc)
        insert_pools(self, self.__dict__.pop("_pools"))
        complete(self, cfg, cfg.max_source_positions)

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        pool = self._pools["controls"]
        if pool is None:
            return super().build_encoder_layer(cfg)
        control = pool.for_next_layer()
        assert control is not None
        layer = ABCEncoderLayer(cfg, control, return_fc=self.return_fc)
        return wrapped(layer, cfg)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """fairseq's forward pass, in which the layers share values that a control computes once."""
        with nullcontext() if self.controls is None else self.controls.forward_pass():
            return super().forward(*args, **kwargs)

    def max_positions(self) -> int:
        """fairseq's hook: the largest number of tokens of a source sentence."""
        positions: int = super().max_positions()
        return positions if self.controls is None else self.controls.limit(positions)

    def reorder_encoder_out(self, encoder_out: dict[str, Any], new_order: Tensor) -> Any:
        """fairseq's hook for beam search. While it keeps all sentences, nothing is copied.

        `copies` of an output is the number of hypotheses of a sentence, which are adjacent rows.
        """
        states, copies = encoder_out["encoder_out"], encoder_out.get("copies", 1)
        if not states or not is_immediate(new_order):
            return super().reorder_encoder_out(encoder_out, new_order)
        rows = states[0].shape[1]
        if is_identity(new_order, rows, copies):
            return encoder_out
        sentences = new_order // copies
        if copies == 1:
            copies = max(1, len(new_order) // rows)
        reordered = super().reorder_encoder_out(encoder_out, new_order)
        return reordered | {"copies": copies if all_copies(sentences, copies) else 1}

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> Any:
        check_dictionary(self, state_dict, name)
        return super().upgrade_state_dict_named(state_dict, name)


class ABCTransformerDecoder(TransformerDecoderBase):
    """fairseq's decoder with bounded memories for its causal and its cross attention.

    causal_controls, cross_controls: of its layers; None without slots. With `abc_causal_layers`,
        layers have different causal attention
    """

    causal_controls: ControlPool | None
    cross_controls: ControlPool | None

    def __init__(
        self,
        cfg: Any,
        dictionary: Any,
        embed_tokens: nn.Module,
        no_encoder_attn: bool = False,
        output_projection: nn.Module | None = None,
    ) -> None:
        # fairseq's __init__ builds the layers. Until it returns, a dictionary holds the pools.
        self._pools = {
            "causal_controls": _causal_pool(cfg),
            "cross_controls": None if no_encoder_attn else _pool(cfg, _spec(cfg, "cross")),
        }
        if getattr(cfg, "abc_marian", False):
            embed_tokens = StartEmbedding(cast(nn.Embedding, embed_tokens), dictionary.eos())
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn, output_projection)
        insert_pools(self, self.__dict__.pop("_pools"))
        complete(self, cfg, cfg.max_target_positions)
        if getattr(cfg, "abc_output_bias", False):
            self.output_projection.bias = nn.Parameter(torch.zeros(len(dictionary)))

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        controls = [
            None if pool is None else pool.for_next_layer() for pool in self._pools.values()
        ]
        return wrapped(ABCDecoderLayer(cfg, no_encoder_attn, *controls), cfg)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None = None,
        incremental_state: dict[str, Any] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> Any:
        if full_context_alignment and self.causal_controls is not None:
            raise MemAttnError(
                "full-context alignment needs a decoder that attends to later tokens, which a "
                "causal memory cannot do; use --abc-causal-slots 0"
            )
        if wants_graphs(prev_output_tokens) and self._goes_on(incremental_state):
            assert incremental_state is not None
            return self._replayed(prev_output_tokens, incremental_state), {"attn": [None]}
        with self._forward_pass():
            return super().extract_features(
                prev_output_tokens,
                encoder_out,
                incremental_state,
                full_context_alignment,
                alignment_layer,
                alignment_heads,
            )

    def reorder_incremental_state_scripting(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> None:
        """fairseq's hook. An order that keeps all rows is asked for once, for all layers."""
        if self._keeps_rows(incremental_state, new_order):
            return
        with self._forward_pass():
            for layer in self.layers:
                for name in ("self_attn", "encoder_attn"):
                    if (attention := getattr(layer, name, None)) is not None:
                        attention.reorder_incremental_state(incremental_state, new_order)

    def _keeps_rows(self, incremental_state: IncrementalState, new_order: Tensor) -> bool:
        first = next(iter(self.layers), None)
        attention = getattr(first, "self_attn", None)
        if not isinstance(attention, ABCAttention):
            return False
        state = attention.get_incremental_state(incremental_state, "memory")
        return state is not None and is_identity(new_order, len(state[0]))

    @contextmanager
    def positions_from(self, start: int) -> Iterator[None]:
        """Forward passes of tokens whose positions begin at `start`, padding on the right."""

        def vectors(embedding: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
            x = position_vectors(embedding, start, out.shape[1], out.device)
            return x.to(out.dtype).expand_as(out)

        if start == 0 or self.embed_positions is None:
            yield
            return
        handle = self.embed_positions.register_forward_hook(vectors)
        try:
            yield
        finally:
            handle.remove()

    def _goes_on(self, incremental_state: dict[str, Any] | None) -> bool:
        """Whether a step needs nothing but the states of bounded memories, and no weights."""
        if not incremental_state or self.cross_self_attention:
            return False
        found = (
            (attention, name)
            for layer in self.layers
            for attention, name in ((layer.self_attn, "memory"), (layer.encoder_attn, "source"))
            if attention is not None
        )
        return all(
            isinstance(attention, ABCAttention)
            and not (attention.return_source_weights or attention.drop_rate)
            and attention.get_incremental_state(incremental_state, name) is not None
            for attention, name in found
        )

    def _replayed(self, tokens: Tensor, incremental_state: dict[str, Any]) -> Tensor:
        """Features (B, 1, E) of the last token after others, as a CUDA graph."""
        graph = incremental_state.pop(GRAPH, None) or StepGraph(self._step)
        positions = None
        if self.embed_positions is not None:
            positions = self.embed_positions(tokens, incremental_state=incremental_state)[:, -1:]
        x, after = graph(dict(incremental_state), tokens[:, -1:], positions)
        incremental_state.update(after)
        incremental_state[GRAPH] = graph
        return x

    def _step(
        self, state: dict[str, Any], tokens: Tensor, positions: Tensor | None
    ) -> tuple[Tensor, dict[str, Any]]:
        state = dict(state)
        x = self._embedded(tokens, positions)
        padding = tokens.eq(self.padding_idx)
        for layer in self.layers:
            # Cross attention reads the memory in the state, and not its source.
            x, *_ = layer(x, x, None, state, self_attn_padding_mask=padding)
        return self._finished(x), state

    def read_on(
        self,
        tokens: Tensor,
        incremental_state: dict[str, Any],
        start: int = 0,
        encoder_out: dict[str, list[Tensor]] | None = None,
    ) -> Tensor:
        """Features (B, T, E) of the T tokens after those of incremental_state, in one call.

        fairseq's incremental decoding takes one token at a time.

        tokens: (B, T), padding on the right
        start: the position of the first token
        encoder_out: of the source, which language models do not have

        Raises MemAttnError for positions that a learned embedding does not have, and for a decoder
        with softmax attention, unless it has a source and the state is empty.
        """
        softmax = self.causal_controls is None or self.causal_controls.has_softmax
        if softmax and (encoder_out is None or start):
            raise MemAttnError(
                "reading on from a state of constant size needs a bounded memory in every layer, "
                "but this model has layers with softmax attention"
            )
        padding = tokens.eq(self.padding_idx)
        vectors = None
        if self.embed_positions is not None:
            vectors = position_vectors(self.embed_positions, start, tokens.shape[1], tokens.device)
        x = self._embedded(tokens, vectors)
        mask = padding if possibly_any(padding) else None
        sources: list[Tensor | None] = [None, None]
        if encoder_out is not None:
            names = ("encoder_out", "encoder_padding_mask")
            sources = [next(iter(encoder_out[name]), None) for name in names]
        future = self.buffered_future_mask(x)
        masks = {"self_attn_mask": future, "self_attn_padding_mask": mask}
        with self._forward_pass():
            for layer in self.layers:
                x, *_ = layer(x, *sources, incremental_state, **masks)
        return self._finished(x)

    def _forward_pass(self) -> AbstractContextManager[None]:
        """Lets the layers share what they compute of the source."""
        pool = self.cross_controls
        return nullcontext() if pool is None else pool.forward_pass()

    def _embedded(self, tokens: Tensor, positions: Tensor | None) -> Tensor:
        """(T, B, E) of tokens (B, T) and vectors of their positions."""
        x = self.embed_scale * self.embed_tokens(tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if positions is not None:
            x = x + positions.to(x.dtype)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x).transpose(0, 1)

    def _finished(self, x: Tensor) -> Tensor:
        """The features (B, T, E) after the last layer's (T, B, E)."""
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)
        return x if self.project_out_dim is None else self.project_out_dim(x)

    def max_positions(self) -> int:
        """fairseq's hook, for the target."""
        positions: int = super().max_positions()
        return positions if self.causal_controls is None else self.causal_controls.limit(positions)

    def max_source_positions(self, positions: int) -> int:
        """The smaller of `positions` and the maximum length of the cross attention's controls."""
        return positions if self.cross_controls is None else self.cross_controls.limit(positions)

    def buffered_future_mask(self, tensor: Tensor) -> Tensor | None:
        """fairseq's T x T mask, which only softmax attention needs."""
        pool = self.causal_controls
        needed = pool is None or pool.has_softmax
        return super().buffered_future_mask(tensor) if needed else None

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> Any:
        check_dictionary(self, state_dict, name)
        return super().upgrade_state_dict_named(state_dict, name)


def complete(stack: Any, cfg: Any, length: int) -> None:
    """Adds what fairseq's stacks lack: Marian's positions, and swish, which fairseq does not call.

    length: the largest number of tokens
    """
    if getattr(cfg, "abc_marian", False):
        sizes = stack.embed_tokens.embedding_dim, stack.padding_idx, length
        stack.embed_positions = MarianPositionalEmbedding(*sizes)
    if getattr(cfg.activation_fn, "value", cfg.activation_fn) == "swish":
        for layer in stack.layers:
            layer.activation_fn = nn.functional.silu


def position_vectors(
    embedding: Any, start: int, length: int, device: torch.device | None = None
) -> Tensor:
    """fairseq's vectors (length, E) of the positions from `start`.

    device: where they are computed, if the embedding does not have them
    Raises MemAttnError for positions that a learned embedding does not have.
    """
    if isinstance(embedding, MarianPositionalEmbedding):
        return embedding.vectors(start, length, device)
    if isinstance(embedding, SinusoidalPositionalEmbedding):
        # fairseq's table ends at the maximum length.
        first = embedding.padding_idx + 1 + start
        positions = torch.arange(first, first + length, device=device)
        return sinusoids(positions, embedding.embedding_dim)
    last = start + length
    if last > embedding.max_positions:
        raise MemAttnError(
            f"the model has {embedding.max_positions} learned positions, but the text has {last}"
        )
    first = embedding.padding_idx + 1 + start
    return embedding.weight[first : first + length]


def _causal_pool(cfg: Any) -> ControlPool | None:
    """The controls of a decoder's causal attention; None without slots."""
    layers = getattr(cfg, "abc_causal_layers", "")
    if not layers:
        return _pool(cfg, _spec(cfg, "causal"))
    return _pool(cfg, *(_spec(cfg, "causal", entry) for entry in attention_of_layers(layers)))


def _pool(cfg: Any, *specs: ControlSpec | None) -> ControlPool | None:
    """The controls of layers; None without slots."""
    if not any(specs):
        return None
    return ControlPool(specs, tied=cfg.abc_phi_layers == "shared")


def _spec(cfg: Any, kind: str, layer: LayerAttention = BY_FLAGS) -> ControlSpec | None:
    """The control of a kind of attention; None without slots.

    Raises MemAttnError, which names the flag, for options that do not fit.
    """
    slots = getattr(cfg, f"abc_{kind}_slots", 0) if layer.slots is None else layer.slots
    if slots == 0:
        return None
    side = cfg.encoder if kind == "encoder" else cfg.decoder
    source = cfg.encoder if kind == "cross" else side
    name = layer.control or cfg.abc_control
    with option_errors(kind):
        sizes = Sizes(
            embed_dim=source.embed_dim,
            slots=slots,
            heads=1 if cfg.abc_phi_heads == "shared" else side.attention_heads,
            attention_heads=side.attention_heads,
            head_dim=side.embed_dim // side.attention_heads,
            max_positions=(
                cfg.max_target_positions if kind == "causal" else cfg.max_source_positions
            ),
            kind=kind,
        )
        options = control_options(cfg, name)
        options.check(sizes)
        return ControlSpec(name, sizes, options)


def wrapped(layer: nn.Module, cfg: Any) -> nn.Module:
    """A layer with activation checkpointing and sharding, as fairseq wraps its own layers."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    # A checkpointed layer is always sharded, whatever its size.
    smallest = 0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
    return fsdp_wrap(layer, min_num_params=smallest)


def check_dictionary(module: Any, state_dict: dict[str, Tensor], name: str) -> None:
    """Raises MemAttnError if the checkpoint's number of symbols is not the dictionary's."""
    weight = state_dict.get(f"{name}.embed_tokens.weight")
    if weight is None or len(weight) == module.embed_tokens.num_embeddings:
        return
    raise MemAttnError(
        f"the {name} of the checkpoint has {len(weight)} symbols, but the dictionary has "
        f"{module.embed_tokens.num_embeddings}. Either the data belongs to another model, or "
        "--task document_translation (which adds a separator) or --sentinels was given only in "
        "training or only now"
    )
