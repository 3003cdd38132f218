"""Encoder-decoder transformers whose encoder has GMAT's global memory (section 3.2)."""

import logging
from argparse import ArgumentParser
from typing import Any

from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_legacy import (
    DEFAULT_MAX_SOURCE_POSITIONS,
    base_architecture,
)
from torch import nn

from fairseq_memattn.attention.controls import all_controls
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.abc_config import (
    add_arguments,
    as_namespace,
    resolve_control,
    set_defaults,
)
from fairseq_memattn.models.abc_transformer import ABCDecoding
from fairseq_memattn.models.gmat_config import (
    GMATTransformerConfig,
    check_positions,
    resolve_defaults,
)
from fairseq_memattn.modules.control_flags import set_control_defaults, warn_of_unused
from fairseq_memattn.modules.gmat_encoder import GMATEncoder

logger = logging.getLogger(__name__)


@register_model("gmat_transformer")
class GMATTransformer(ABCDecoding):
    """fairseq's transformer with a global memory in its encoder.

    The decoder attends to the encoder's tokens and not to its memory (a choice). It has softmax
    attention, or ABC where it has slots.
    """

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        add_arguments(parser, GMATTransformerConfig())

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "GMATTransformer":
        args = as_namespace(args)
        base_architecture(args)
        longest = getattr(args, "max_source_positions", None) or DEFAULT_MAX_SOURCE_POSITIONS
        if args.encoder_learned_pos:
            check_positions("--max-source-positions", longest)
        resolve_defaults(args, GMATTransformerConfig(), longest)
        _resolve_decoder(args)
        if getattr(args, "cross_self_attention", False):
            raise MemAttnError("--cross-self-attention does not work with --arch gmat_transformer")
        return super().build_model(args, task)

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: Any) -> nn.Module:
        return GMATEncoder(TransformerConfig.from_namespace(args), src_dict, embed_tokens)


@register_model_architecture("gmat_transformer", "gmat_transformer")
def base(args: Any) -> None:
    """Transformer-base: six and six layers of 512."""
    set_defaults(args, GMATTransformerConfig())
    set_control_defaults(args)
    base_architecture(args)


def _resolve_decoder(args: Any) -> None:
    """Completes and checks the options of the decoder, whose attention may be softmax."""
    control = str(args.gmat_decoder_control)
    if control not in all_controls():
        raise MemAttnError(
            f"--gmat-decoder-control must be one of {', '.join(all_controls())}, but is {control}"
        )
    args.abc_control, args.abc_encoder_slots = control, 0
    if args.abc_causal_slots or args.abc_cross_slots or args.abc_causal_layers:
        resolve_control(args, control, GMATTransformerConfig(), "causal", "cross")
    else:
        set_control_defaults(args, control)
        warn_of_unused(args, [])
        if control != GMATTransformerConfig().gmat_decoder_control:
            logger.warning(
                f"--gmat-decoder-control {control} is not used without --abc-causal-slots and "
                "--abc-cross-slots: the decoder has softmax attention"
            )
