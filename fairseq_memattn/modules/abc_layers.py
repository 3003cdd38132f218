"""fairseq's transformer encoder and decoder with bounded memories in the place of attention."""

from contextlib import nullcontext
from typing import Any

from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import Tensor, nn

from fairseq_memattn.attention.controls import Control, ControlOptions
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.modules.abc_attention import ABCAttention, is_identity
from fairseq_memattn.modules.control_pool import ControlPool, global_positions


class ABCEncoderLayer(TransformerEncoderLayerBase):
    """An encoder layer whose self-attention is ABC, over the whole sequence."""

    def __init__(self, cfg: Any, control: Control, return_fc: bool = False) -> None:
        self._control = (control,)
        super().__init__(cfg, return_fc)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        return ABCAttention(
            embed_dim,
            cfg.encoder.attention_heads,
            self._control[0],
            causal=False,
            dropout=cfg.attention_dropout,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )


class ABCDecoderLayer(TransformerDecoderLayerBase):
    """A decoder layer with ABC as its causal attention, its cross attention, or both.

    A control of None leaves softmax attention in that place.
    """

    def __init__(
        self,
        cfg: Any,
        no_encoder_attn: bool,
        causal_control: Control | None,
        cross_control: Control | None,
    ) -> None:
        self._causal_control, self._cross_control = (causal_control,), (cross_control,)
        super().__init__(cfg, no_encoder_attn)

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> nn.Module:
        (control,) = self._causal_control
        if control is None:
            return super().build_self_attention(embed_dim, cfg, add_bias_kv, add_zero_attn)
        return self._attention(embed_dim, cfg, control, causal=True)

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        (control,) = self._cross_control
        if control is None:
            return super().build_encoder_attention(embed_dim, cfg)
        return self._attention(
            embed_dim, cfg, control, causal=False, source_dim=cfg.encoder.embed_dim
        )

    def _attention(
        self, embed_dim: int, cfg: Any, control: Control, **options: Any
    ) -> ABCAttention:
        return ABCAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            control,
            dropout=cfg.attention_dropout,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
            **options,
        )


class ABCTransformerEncoder(TransformerEncoderBase):
    """fairseq's encoder; with `abc_encoder_slots` its self-attention is ABC."""

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        if not hasattr(self, "controls"):  # called from fairseq's __init__, layer after layer
            self.controls = _pool(
                cfg,
                cfg.encoder,
                cfg.encoder.embed_dim,
                cfg.abc_encoder_slots,
                cfg.max_source_positions,
                encoder=True,
            )
        if self.controls is None:
            return super().build_encoder_layer(cfg)
        layer = ABCEncoderLayer(cfg, self.controls.for_next_layer(), return_fc=self.return_fc)
        return _wrapped(layer, cfg)

    def max_positions(self) -> int:
        """fairseq's hook: sentences beyond it are refused, or left out on demand."""
        positions: int = super().max_positions()
        return positions if self.controls is None else self.controls.limit(positions)

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> Any:
        """Copies the source's states only where they move: a memory is not read from them."""
        states = encoder_out["encoder_out"]
        if states and is_identity(new_order, states[0].shape[1]):
            return encoder_out
        return super().reorder_encoder_out(encoder_out, new_order)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> Any:
        _check_dictionary(self, state_dict, name)
        _check_controls(self, state_dict, name)
        return super().upgrade_state_dict_named(state_dict, name)


class ABCTransformerDecoder(TransformerDecoderBase):
    """fairseq's decoder with bounded memories for its causal and its cross attention."""

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        if not hasattr(self, "causal_controls"):  # called from fairseq's __init__
            self.causal_controls = _pool(
                cfg,
                cfg.decoder,
                cfg.decoder.embed_dim,
                cfg.abc_causal_slots,
                cfg.max_target_positions,
                causal=True,
            )
            cross_slots = 0 if no_encoder_attn else cfg.abc_cross_slots
            self.cross_controls = _pool(
                cfg, cfg.decoder, cfg.encoder.embed_dim, cross_slots, cfg.max_source_positions
            )
        layer = ABCDecoderLayer(
            cfg,
            no_encoder_attn,
            *(
                None if pool is None else pool.for_next_layer()
                for pool in (self.causal_controls, self.cross_controls)
            ),
        )
        return _wrapped(layer, cfg)

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
                "full-context alignment needs a decoder that sees the future, "
                "which a causal memory never does; use --abc-causal-slots 0 for it"
            )
        with nullcontext() if self.cross_controls is None else self.cross_controls.one_source():
            return super().extract_features(
                prev_output_tokens,
                encoder_out,
                incremental_state,
                full_context_alignment,
                alignment_layer,
                alignment_heads,
            )

    def max_positions(self) -> int:
        """fairseq's hook, for the target."""
        positions: int = super().max_positions()
        return positions if self.causal_controls is None else self.causal_controls.limit(positions)

    def max_source_positions(self, positions: int) -> int:
        """Those of `positions` that the cross attention can tell apart."""
        return positions if self.cross_controls is None else self.cross_controls.limit(positions)

    def buffered_future_mask(self, tensor: Tensor) -> Tensor | None:
        """fairseq's T x T mask, which only softmax attention needs."""
        return super().buffered_future_mask(tensor) if self.causal_controls is None else None

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> Any:
        _check_dictionary(self, state_dict, name)
        _check_controls(self, state_dict, name)
        return super().upgrade_state_dict_named(state_dict, name)


def _pool(
    cfg: Any,
    side: Any,
    source_dim: int,
    slots: int,
    max_positions: int,
    encoder: bool = False,
    causal: bool = False,
) -> ControlPool | None:
    if slots == 0:
        return None
    options = ControlOptions(
        embed_dim=source_dim,
        slots=slots,
        heads=1 if cfg.abc_phi_heads == "shared" else side.attention_heads,
        max_length=cfg.abc_max_length or max_positions,
        activation=cfg.abc_activation,
        stride=cfg.abc_stride,
        positions=global_positions(cfg.abc_global_positions),
        window=cfg.abc_local_window,
        seed=cfg.abc_random_seed,
        attention_heads=side.attention_heads,
        head_dim=side.embed_dim // side.attention_heads,
        gate=cfg.abc_rfa_gate and causal,
        encoder=encoder,
    )
    return ControlPool(cfg.abc_control, options, tied=cfg.abc_phi_layers == "shared")


def _wrapped(layer: nn.Module, cfg: Any) -> nn.Module:
    """Activation checkpointing and sharding, as fairseq wraps the layers it builds itself."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    # A checkpointed layer is always sharded, whatever its size.
    smallest = 0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
    return fsdp_wrap(layer, min_num_params=smallest)


def _check_dictionary(module: Any, state_dict: dict[str, Tensor], name: str) -> None:
    """Refuses a checkpoint with another number of symbols."""
    weight = state_dict.get(f"{name}.embed_tokens.weight")
    if weight is None or len(weight) == module.embed_tokens.num_embeddings:
        return
    raise MemAttnError(
        f"the checkpoint has {len(weight)} symbols, but the dictionary has "
        f"{module.embed_tokens.num_embeddings}: the data is another model's, or only one of "
        "training and this command had --task document_translation, which adds a separator"
    )


FLAG_OF_POOL = {
    "causal_controls": "--abc-causal-slots",
    "cross_controls": "--abc-cross-slots",
    "controls": "--abc-encoder-slots",
}


def _check_controls(module: nn.Module, state_dict: dict[str, Tensor], name: str) -> None:
    """Refuses a checkpoint whose memories are not this model's."""
    for pool_name, flag in FLAG_OF_POOL.items():
        prefix = f"{name}.{pool_name}."
        given = {key: tuple(w.shape) for key, w in state_dict.items() if key.startswith(prefix)}
        pool = getattr(module, pool_name, None)
        own = {} if pool is None else pool.state_dict(prefix=prefix)
        wanted = {key: tuple(w.shape) for key, w in own.items()}
        if given != wanted:
            raise MemAttnError(
                f"the checkpoint was trained with another {flag}, --abc-phi-heads, "
                f"--abc-phi-layers, --arch or maximum length: its control weights are "
                f"{_described(given)}, "
                f"this model's are {_described(wanted)}"
            )


def _described(shapes: dict[str, tuple[int, ...]]) -> str:
    if not shapes:
        return "absent (0 slots, or a control without weights)"
    shape = next(iter(shapes.values()))
    return f"{len(shapes)} of {' x '.join(map(str, shape))}"
