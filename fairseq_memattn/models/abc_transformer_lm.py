"""Language models with a bounded memory (ABC paper, section 5.1).

Every control strategy gives a model, `abc_CONTROL_transformer_lm`, in the same sizes, and so
does kernel attention: `elu_transformer_lm`, `rfa_transformer_lm`, `t2r_transformer_lm`.
"""

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import (
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
    base_lm_architecture,
    transformer_lm_baevski_wiki103,
)
from torch import Tensor, distributed

from fairseq_memattn.attention.controls import CONTROLS
from fairseq_memattn.errors import MemAttnError, size_option
from fairseq_memattn.models.abc_config import (
    ABCLanguageModelConfig,
    add_arguments,
    as_namespace,
    longest_text,
    prefer,
    register_controls,
    resolve_control,
    set_defaults,
)
from fairseq_memattn.modules.abc_layers import ABCTransformerDecoder
from fairseq_memattn.modules.low_rank import add_updates


@dataclass
class LanguageModelConfig(ABCLanguageModelConfig):
    context_parallel: int = size_option(
        1,
        "in training, the processes that share each sample: each has a part of its tokens, and "
        "memory for this part alone; divides the number of processes",
        least=1,
    )


class ABCTransformerLanguageModel(TransformerLanguageModel):
    """fairseq's transformer language model, its softmax attention replaced by ABC.

    control: the name of a registered control
    """

    control: ClassVar[str]
    context_parallel = 1

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        gen_parser_from_dataclass(parser, TransformerLanguageModelConfig(), delete_default=True)
        before = parser._option_string_actions["--decoder-normalize-before"]
        before.default = SUPPRESS  # for the architecture's
        parser.add_argument(
            "--no-decoder-normalize-before",
            dest="decoder_normalize_before",
            action="store_false",
            default=SUPPRESS,
            help="apply layernorm after each decoder block, as fairseq's transformer_lm does "
            "without --decoder-normalize-before",
        )
        add_arguments(parser, LanguageModelConfig(), cls.control)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "ABCTransformerLanguageModel":
        args = as_namespace(args)
        resolve_control(args, cls.control, LanguageModelConfig(), "causal")
        args.max_target_positions = longest_text(args, task)
        if kept := getattr(args, "decoder_layers_to_keep", None):
            args.decoder_layers = len(kept.split(","))
        # fairseq's own builder, asked for no layers, chooses and checks the input embeddings.
        none = {"decoder_layers": 0, "decoder_layers_to_keep": None}
        shell = super().build_model(Namespace(**{**vars(args), **none}), task)
        decoder = ABCTransformerDecoder(
            TransformerConfig.from_namespace(args),
            task.target_dictionary,
            shell.decoder.embed_tokens,
            no_encoder_attn=True,
        )
        model = cls(decoder)
        add_updates(model, args)
        model.context_parallel = args.context_parallel
        return model

    def split_context(self) -> None:
        """Lets every `context_parallel` neighbouring processes train on parts of the same samples.

        Raises MemAttnError for an attention whose memory is no sum over tokens.
        """
        attentions = [layer.self_attn for layer in self.decoder.layers]
        for control in (getattr(attention, "control", None) for attention in attentions):
            if control is None or not control.can_split:
                able = [name for name, cls in CONTROLS.items() if cls.can_split]
                found = "softmax" if control is None else type(control).__name__
                raise MemAttnError(
                    f"--context-parallel needs one of the controls {', '.join(able)} in all "
                    f"layers, but one has {found}"
                )
        if attentions[0].context_group is None:
            group, _ = distributed.new_subgroups(self.context_parallel)
            for attention in attentions:
                attention.split_context(group)

    def forward(self, src_tokens: Tensor, start: int = 0, **kwargs: Any) -> Any:
        """start: the position of the first token, where the sequence begins in another process."""
        with self.decoder.positions_from(start):
            return super().forward(src_tokens, **kwargs)


def sized(args: Any, architecture: Callable[[Any], None]) -> None:
    """fairseq's sizes. It sets decoder_normalize_before, whatever has been given."""
    given = getattr(args, "decoder_normalize_before", None)
    architecture(args)
    if given is not None:
        args.decoder_normalize_before = given


def base(args: Any) -> None:
    """fairseq's base language model with a memory of 32 slots."""
    prefer(args, abc_causal_slots=32)
    set_defaults(args, LanguageModelConfig())
    sized(args, base_lm_architecture)


def wiki103(args: Any) -> None:
    """Table 9, left: the 16 layers of Baevski & Auli, adaptive input and softmax, 64 slots."""
    prefer(args, abc_causal_slots=64)
    set_defaults(args, LanguageModelConfig())
    sized(args, transformer_lm_baevski_wiki103)


def wiki103_32(args: Any) -> None:
    """Table 9, right: the 32 layers of Kasai et al., of which training drops a fifth."""
    prefer(args, decoder_layers=32, decoder_layerdrop=0.2)
    wiki103(args)


SIZES = {"": base, "_wiki103": wiki103, "_wiki103_32": wiki103_32}

register_controls(ABCTransformerLanguageModel, "transformer_lm", SIZES, only_causal=True)
