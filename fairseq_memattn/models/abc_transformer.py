"""Encoder-decoder transformers with bounded memories (ABC paper, section 5.2, appendix C.2).

Every control strategy gives a model, `abc_CONTROL_transformer`, in the same sizes, and so does
kernel attention: `elu_transformer`, `rfa_transformer`, `t2r_transformer`.
"""

from argparse import ArgumentParser
from typing import Any, ClassVar

from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig, TransformerModel
from fairseq.models.transformer.transformer_legacy import base_architecture
from torch import Tensor, nn

from fairseq_memattn.attention.controls import control_class
from fairseq_memattn.attention.controls.base import NormalisedControl
from fairseq_memattn.attention.nn.carried import DocumentMemory
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.abc_config import (
    ABCConfig,
    PretrainedConfig,
    add_arguments,
    add_dataclass_flags,
    add_swish,
    as_namespace,
    prefer,
    register_controls,
    resolve_control,
    set_defaults,
)
from fairseq_memattn.modules.abc_attention import ABCAttention
from fairseq_memattn.modules.abc_layers import ABCTransformerDecoder, ABCTransformerEncoder
from fairseq_memattn.modules.document_memory import DocumentMemoryDecoder
from fairseq_memattn.modules.low_rank import add_updates


class ABCDecoding(TransformerModel):
    """fairseq's transformer with ABC's decoder; without slots its attention is softmax."""

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "ABCDecoding":
        model: ABCDecoding = super().build_model(args, task)
        add_updates(model, args)
        return model

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: nn.Module) -> nn.Module:
        return ABCTransformerEncoder(TransformerConfig.from_namespace(args), src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: nn.Module) -> nn.Module:
        cfg = TransformerConfig.from_namespace(args)
        return ABCTransformerDecoder(
            cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )

    def max_positions(self) -> tuple[int, int]:
        source = self.decoder.max_source_positions(self.encoder.max_positions())
        return source, self.decoder.max_positions()

    def set_beam_size(self, beam_size: int) -> None:
        """fairseq's hook: the hypotheses of a sentence share the memory of their source."""
        for module in self.decoder.modules():
            if isinstance(module, ABCAttention):
                module.set_beam_size(beam_size)


@register_model("pretrained_transformer")
class PretrainedTransformer(ABCDecoding):
    """A pretrained translator with softmax attention, as `memattn import-transformers` makes it."""

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        add_dataclass_flags(parser, PretrainedConfig())
        add_swish(parser)


@register_model_architecture("pretrained_transformer", "pretrained_transformer")
def pretrained(args: Any) -> None:
    """fairseq's transformer-base, where nothing else is given."""
    set_defaults(args, PretrainedConfig())
    base_architecture(args)


class ABCTransformer(ABCDecoding):
    """fairseq's transformer, its decoder's softmax attention replaced by ABC.

    control: the name of a registered control
    """

    control: ClassVar[str]
    can_stream: ClassVar[bool] = True  # whether --stream of document translation works

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        add_arguments(parser, ABCConfig(), cls.control)
        add_swish(parser)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "ABCTransformer":
        args = as_namespace(args)
        resolve_control(args, cls.control, ABCConfig(), "causal", "cross", "encoder")
        if getattr(args, "cross_self_attention", False):
            raise MemAttnError(
                "--cross-self-attention attends to source and target at once, "
                "which a causal memory cannot do; leave it out"
            )
        args.abc_stream = bool(getattr(getattr(task, "cfg", None), "stream", False))
        if args.abc_stream:
            _check_stream(args, cls.control)
        return super().build_model(args, task)

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: nn.Module) -> nn.Module:
        if not args.abc_stream:
            return super().build_decoder(args, tgt_dict, embed_tokens)
        cfg = TransformerConfig.from_namespace(args)
        return DocumentMemoryDecoder(cfg, tgt_dict, embed_tokens)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor,
        prev_output_tokens: Tensor,
        *args: Any,
        sentences: int | None = None,
        memory: DocumentMemory | None = None,
        **kwargs: Any,
    ) -> Any:
        """fairseq's forward pass; sentences and memory as in `DocumentMemoryDecoder`."""
        if sentences is None:
            return super().forward(src_tokens, src_lengths, prev_output_tokens, *args, **kwargs)
        encoder_out = self.encoder(src_tokens, src_lengths=src_lengths)
        return self.decoder(
            prev_output_tokens,
            encoder_out=encoder_out,
            sentences=sentences,
            memory=memory,
            **kwargs,
        )


def _check_stream(args: Any, control: str) -> None:
    """Raises MemAttnError for options that do not work with --stream."""
    if not control_class(control).can_carry:
        raise MemAttnError(
            f"--stream does not work with the control {control}, whose memories of two sentences "
            "are not the memory of both; use abc_mlp_transformer"
        )
    if args.attention_dropout and not issubclass(control_class(control), NormalisedControl):
        raise MemAttnError(
            f"--attention-dropout does not work with --stream and the control {control}"
        )
    if args.abc_causal_layers:
        raise MemAttnError("--stream does not work with --abc-causal-layers")
    if not args.abc_causal_slots and not args.abc_cross_slots:
        raise MemAttnError(
            "--stream needs a memory to carry: --abc-causal-slots or --abc-cross-slots must be at "
            "least 1"
        )
    if getattr(args, "checkpoint_activations", False):
        raise MemAttnError("--checkpoint-activations does not work with --stream")


def base(args: Any) -> None:
    """Transformer-base with the paper's smaller memories: cross 32, causal 8; table 10, left."""
    set_defaults(args, ABCConfig())
    base_architecture(args)


def iwslt_es_en(args: Any) -> None:
    """Table 10, right: feed-forward 1024, dropout 0.3, cross 128, causal 64.

    The heads share their controls: with 192 slots, separate ones would add 1.7 percent to the
    parameters, where the paper adds less than one.
    """
    prefer(args, encoder_ffn_embed_dim=1024, dropout=0.3)
    prefer(args, abc_cross_slots=128, abc_causal_slots=64, abc_phi_heads="shared")
    base(args)


SIZES = {"": base, "_wmt_en_de": base, "_iwslt_es_en": iwslt_es_en}

register_controls(ABCTransformer, "transformer", SIZES)
