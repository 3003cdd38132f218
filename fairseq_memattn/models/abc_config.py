"""The flags of the ABC family, in one place for the command line and for YAML."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass

from fairseq_memattn.attention.controls.mlp import LOG_ACTIVATIONS
from fairseq_memattn.errors import MemAttnError

# Classes made while running, which mypy takes for variables.
ACTIVATIONS = ChoiceEnum(list(LOG_ACTIVATIONS))
SHARING = ChoiceEnum(["shared", "separate"])


@dataclass
class ABCLanguageModelConfig(FairseqDataclass):
    """What a decoder without a source needs."""

    abc_causal_slots: int = field(
        default=8,
        metadata={
            "help": "memory slots of the decoder's causal attention: its cost and its decoding "
            "state grow with this number and not with the length; 0 means softmax attention"
        },
    )
    abc_activation: ACTIVATIONS = field(  # type: ignore[valid-type]
        default="exp",
        metadata={
            "help": "activation of W_phi x, which decides how much of a token is written into "
            "each slot; the ABC paper finds exp best and relu least stable"
        },
    )
    abc_phi_layers: SHARING = field(  # type: ignore[valid-type]
        default="shared",
        metadata={
            "help": "one W_phi for all layers, as in the paper (under 1 percent more parameters "
            "than softmax attention), or a separate one in each layer"
        },
    )
    abc_phi_heads: SHARING = field(  # type: ignore[valid-type]
        default="separate",
        metadata={
            "help": "whether the heads of a layer write with a separate control each, or all "
            "with a shared one, which costs less where heads times slots nears the model size"
        },
    )


@dataclass
class ABCConfig(ABCLanguageModelConfig):
    """What an encoder-decoder adds."""

    abc_cross_slots: int = field(
        default=32,
        metadata={
            "help": "memory slots of the decoder's cross attention, written once a sentence; "
            "the paper finds it should be at least --abc-causal-slots; 0 means softmax attention"
        },
    )
    abc_encoder_slots: int = field(
        default=0,
        metadata={
            "help": "memory slots of the encoder's self-attention; 0, the paper's choice for "
            "translation, means softmax attention"
        },
    )


def add_arguments(parser: ArgumentParser, config: ABCLanguageModelConfig) -> None:
    """Adds the fields as flags, without defaults: those are the architecture's."""
    gen_parser_from_dataclass(parser, config, delete_default=True)


def as_namespace(args: Any) -> Namespace:
    """The options of a model as fairseq's older models want them.

    Under YAML they come as a DictConfig, of which `TransformerConfig.from_namespace` would see
    no field that is not its own.
    """
    return args if isinstance(args, Namespace) else Namespace(**args)


def set_defaults(args: Any, config: ABCLanguageModelConfig) -> None:
    """Gives args (a namespace or a DictConfig) what neither user nor architecture has set."""
    for name in config._get_all_attributes():
        if getattr(args, name, None) is None:
            setattr(args, name, getattr(config, name))


def check(args: Any, *kinds: str) -> None:
    """Refuses slots that make no sense. kinds: of "causal", "cross", "encoder".

    Raises MemAttnError with one sentence that names the flag and the value.
    """
    slots = {f"--abc-{kind}-slots": getattr(args, f"abc_{kind}_slots") for kind in kinds}
    for flag, value in slots.items():
        if value < 0:
            raise MemAttnError(f"{flag} must be 0 (softmax attention) or more, but is {value}")
    if not any(slots.values()):
        raise MemAttnError(
            f"{' and '.join(slots)} must not all be 0: that is fairseq's plain transformer, "
            "which has an --arch of its own"
        )
    for name, choices in (
        ("abc_activation", LOG_ACTIVATIONS),
        ("abc_phi_layers", ("shared", "separate")),
        ("abc_phi_heads", ("shared", "separate")),
    ):
        value = str(getattr(args, name))
        if value not in choices:
            flag = "--" + name.replace("_", "-")
            raise MemAttnError(f"{flag} must be one of {', '.join(choices)}, but is {value}")


def check_heads(args: Any, *sides: str) -> None:
    """Refuses sizes that heads cannot share out. sides: of "encoder", "decoder"."""
    for side in sides:
        size, heads = (getattr(args, f"{side}_{name}") for name in ("embed_dim", "attention_heads"))
        if heads < 1 or size % heads:
            raise MemAttnError(
                f"--{side}-attention-heads must divide --{side}-embed-dim {size}, but is {heads}"
            )
