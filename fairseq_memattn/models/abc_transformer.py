"""Encoder-decoder transformers with bounded memories (ABC paper, section 5.2, appendix C.2).

Every control strategy gives a model, `abc_CONTROL_transformer`, in the same sizes, and so does
kernel attention: `elu_transformer`, `rfa_transformer`, `t2r_transformer`.
"""

from argparse import ArgumentParser
from typing import Any, ClassVar

from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_legacy import base_architecture
from torch import nn

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.abc_config import (
    ABCConfig,
    add_arguments,
    as_namespace,
    check_heads,
    register_controls,
    resolve_control,
    set_defaults,
)
from fairseq_memattn.models.abc_decoding import ABCDecoding
from fairseq_memattn.modules.abc_layers import ABCTransformerEncoder


class ABCTransformer(ABCDecoding):
    """fairseq's transformer, its decoder's softmax attention replaced by ABC.

    control: the name of a registered control
    """

    control: ClassVar[str]

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        add_arguments(parser, ABCConfig(), cls.control)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "ABCTransformer":
        args = as_namespace(args)
        resolve_control(args, cls.control, ABCConfig(), "causal", "cross", "encoder")
        check_heads(args, "encoder", "decoder")
        if getattr(args, "cross_self_attention", False):
            raise MemAttnError(
                "--cross-self-attention attends to source and target at once, "
                "which a causal memory cannot do; leave it out"
            )
        return super().build_model(args, task)

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: nn.Module) -> nn.Module:
        return ABCTransformerEncoder(TransformerConfig.from_namespace(args), src_dict, embed_tokens)


def base(args: Any) -> None:
    """Transformer-base with the paper's smaller memories: cross 32, causal 8."""
    set_defaults(args, ABCConfig())
    base_architecture(args)


def wmt_en_de(args: Any) -> None:
    """Table 10, left: six layers of 512, feed-forward 2048, eight heads, dropout 0.1."""
    base(args)


def iwslt_es_en(args: Any) -> None:
    """Table 10, right: feed-forward 1024, dropout 0.3, cross 128, causal 64.

    The heads share their controls: with 192 slots, separate ones would add 1.7 percent to the
    parameters, where the paper adds less than one.
    """
    args.encoder_ffn_embed_dim = getattr(args, "encoder_ffn_embed_dim", 1024)
    args.dropout = getattr(args, "dropout", 0.3)
    args.abc_cross_slots = getattr(args, "abc_cross_slots", 128)
    args.abc_causal_slots = getattr(args, "abc_causal_slots", 64)
    args.abc_phi_heads = getattr(args, "abc_phi_heads", "shared")
    base(args)


SIZES = {"": base, "_wmt_en_de": wmt_en_de, "_iwslt_es_en": iwslt_es_en}

register_controls(ABCTransformer, "transformer", SIZES)
