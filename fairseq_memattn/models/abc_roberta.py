"""Masked language models with a bounded memory (ABC paper, section 5.3 and appendix C.3).

Every control strategy gives a model, `abc_CONTROL_roberta`, in the same sizes, and so does
kernel attention: `elu_roberta`, `rfa_roberta`, `t2r_roberta`.
"""

from argparse import ArgumentParser
from copy import deepcopy
from typing import Any, ClassVar

from fairseq.models.roberta import RobertaEncoder, RobertaModel
from fairseq.models.roberta.model import base_architecture
from fairseq.models.transformer import TransformerConfig
from torch import nn

from fairseq_memattn.models.abc_config import (
    ABCEncoderConfig,
    add_arguments,
    as_namespace,
    prefer,
    register_controls,
    resolve_control,
    set_defaults,
    single_length,
    tiny_sizes,
)
from fairseq_memattn.modules.abc_layers import ABCTransformerEncoder
from fairseq_memattn.modules.low_rank import add_updates


class ABCRobertaEncoder(RobertaEncoder):
    """fairseq's RoBERTa encoder over an encoder with bounded memories."""

    def build_encoder(self, args: Any, dictionary: Any, embed_tokens: nn.Module) -> nn.Module:
        # RobertaModel initialises the weights after BERT; fairseq's build_encoder does so twice.
        return ABCTransformerEncoder(
            TransformerConfig.from_namespace(args), dictionary, embed_tokens
        )

    def max_positions(self) -> int:
        """fairseq's hook: the smaller of the numbers of positions of embeddings and controls."""
        return min(self.args.max_positions, self.sentence_encoder.max_positions())


class ABCRoberta(RobertaModel):
    """fairseq's RoBERTa, its softmax attention replaced by ABC.

    control: the name of a registered control
    """

    control: ClassVar[str]

    def __init__(self, args: Any, encoder: ABCRobertaEncoder) -> None:
        controls = encoder.sentence_encoder.controls
        own = deepcopy(controls.state_dict())
        super().__init__(args, encoder)
        # BERT's initialisation is for projections. With its small scale, a control would write
        # every token with about equal weight into all slots.
        controls.load_state_dict(own)

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        add_arguments(parser, ABCEncoderConfig(), cls.control)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "ABCRoberta":
        args = as_namespace(args)
        base_architecture(args)
        resolve_control(args, cls.control, ABCEncoderConfig(), "encoder")
        if getattr(args, "max_positions", None) is None:
            args.max_positions = getattr(args, "tokens_per_sample", None) or single_length(task)
        model = cls(args, ABCRobertaEncoder(args, task.source_dictionary))
        add_updates(model, args)
        return model


def base(args: Any) -> None:
    """Table 11: RoBERTa-base, 12 layers of 768, with 64 slots.

    The heads share their controls, so that tokens can be written before they are projected.
    Otherwise a memory is hardly faster than softmax attention for 512 tokens.
    """
    prefer(args, abc_phi_heads="shared")
    set_defaults(args, ABCEncoderConfig())
    base_architecture(args)


def tiny(args: Any) -> None:
    """Four layers of 128, for a CPU."""
    tiny_sizes(args)
    base(args)


SIZES = {"": base, "_base": base, "_tiny": tiny}

register_controls(ABCRoberta, "roberta", SIZES)
