"""The flags of the ABC family, in one place for the command line and for YAML."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture

from fairseq_memattn.attention.controls import CONTROLS, RIVALS
from fairseq_memattn.attention.controls.activations import LOG_ACTIVATIONS
from fairseq_memattn.errors import MemAttnError, check_least, flag
from fairseq_memattn.modules.control_pool import global_positions

# Classes made while running, which mypy takes for variables.
ACTIVATIONS = ChoiceEnum(list(LOG_ACTIVATIONS))
SHARING = ChoiceEnum(["shared", "separate"])


@dataclass
class ABCControlConfig(FairseqDataclass):
    """What controls need, wherever their memories are."""

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
    abc_max_length: int = field(
        default=0,
        metadata={
            "help": "tokens that Linformer and compressive controls are made for; 0 means the "
            "model's maximum of positions"
        },
    )
    abc_stride: int = field(
        default=2,
        metadata={
            "help": "how far apart the global tokens of the global control are, of which there "
            "are as many as slots, and the tokens that dilated and strided windows see"
        },
    )
    abc_global_positions: str = field(
        default="",
        metadata={
            "help": "positions of the global control's tokens, from 0 and with commas between "
            "them, instead of every --abc-stride-th"
        },
    )
    abc_local_window: int = field(
        default=0,
        metadata={
            "help": "of the local_global control's slots, those for the last tokens; the others "
            "are for global ones; 0 means half of them"
        },
    )
    abc_random_seed: int = field(
        default=1, metadata={"help": "of random slots, and of RFA's random features"}
    )
    abc_rfa_gate: bool = field(
        default=False,
        metadata={"help": "let RFA's causal attention forget, by a gate (rfa_transformer alone)"},
    )


@dataclass
class ABCEncoderConfig(ABCControlConfig):
    """What an encoder without a decoder adds."""

    abc_encoder_slots: int = field(
        default=64,
        metadata={"help": "memory slots of the encoder's self-attention; the paper has 64 and 128"},
    )


@dataclass
class ABCLanguageModelConfig(ABCControlConfig):
    """What a decoder without a source adds."""

    abc_causal_slots: int = field(
        default=8,
        metadata={
            "help": "memory slots of the decoder's causal attention: its cost and its decoding "
            "state grow with this number and not with the length; 0 means softmax attention"
        },
    )


@dataclass
class ABCDecoderConfig(ABCLanguageModelConfig):
    """What a decoder with a source adds."""

    abc_cross_slots: int = field(
        default=32,
        metadata={
            "help": "memory slots of the decoder's cross attention, written once a sentence; "
            "the paper finds it should be at least --abc-causal-slots; 0 means softmax attention"
        },
    )


@dataclass
class ABCConfig(ABCDecoderConfig):
    """What an encoder-decoder adds."""

    abc_encoder_slots: int = field(
        default=0,
        metadata={
            "help": "memory slots of the encoder's self-attention; 0, the paper's choice for "
            "translation, means softmax attention"
        },
    )


def register_control(
    model: type, control: str, suffix: str, sizes: Mapping[str, Callable[[Any], None]]
) -> None:
    """Registers abc_CONTROL_SUFFIX, a subclass of `model`, with an architecture for each size.

    A rival's is RIVAL_SUFFIX.
    """
    name = f"{control}_{suffix}" if control in RIVALS else f"abc_{control}_{suffix}"
    refusal = (CONTROLS | RIVALS)[control].causal_refusal
    without_causal = {"abc_causal_slots": 0} if refusal else {}

    def architecture(args: Any, defaults: Callable[[Any], None]) -> None:
        for option, value in without_causal.items():
            setattr(args, option, getattr(args, option, value))
        defaults(args)

    register_model(name)(type(name, (model,), {"control": control, "__doc__": model.__doc__}))
    for size, defaults in sizes.items():
        # A function of its own for each, because fairseq keeps one architecture a function.
        register_model_architecture(name, name + size)(partial(architecture, defaults=defaults))


def add_arguments(parser: ArgumentParser, config: ABCControlConfig) -> None:
    """Adds the fields as flags, without defaults: those are the architecture's."""
    gen_parser_from_dataclass(parser, config, delete_default=True)


def as_namespace(args: Any) -> Namespace:
    """The options of a model as fairseq's older models want them.

    Under YAML they come as a DictConfig, of which `TransformerConfig.from_namespace` would see
    no field that is not its own.
    """
    return args if isinstance(args, Namespace) else Namespace(**args)


def set_defaults(args: Any, config: ABCControlConfig) -> None:
    """Gives args (a namespace or a DictConfig) what neither user nor architecture has set."""
    for name in config._get_all_attributes():
        if getattr(args, name, None) is None:
            setattr(args, name, getattr(config, name))


def check(args: Any, *kinds: str) -> None:
    """Refuses slots that make no sense. kinds: of "causal", "cross", "encoder".

    Raises MemAttnError with one sentence that names the flag and the value.
    """
    slots = {f"--abc-{kind}-slots": getattr(args, f"abc_{kind}_slots") for kind in kinds}
    for option, value in slots.items():
        if value < 0:
            raise MemAttnError(f"{option} must be 0 (softmax attention) or more, but is {value}")
    refusal = (CONTROLS | RIVALS)[args.abc_control].causal_refusal
    if refusal and "causal" in kinds and args.abc_causal_slots:
        raise MemAttnError(
            f"--abc-causal-slots must be 0 with the control {args.abc_control}, but is "
            f"{args.abc_causal_slots}: {refusal}"
        )
    if refusal and getattr(args, "checkpoint_activations", False):
        raise MemAttnError(
            f"--checkpoint-activations does not work with the control {args.abc_control}, whose "
            "layers hand on their memory"
        )
    if not any(slots.values()):
        raise MemAttnError(
            f"{' and '.join(slots)} must not all be 0: that is fairseq's plain transformer, "
            "which has an --arch of its own"
        )
    positions = global_positions(args.abc_global_positions)
    for option, value in slots.items():
        if args.abc_control == "global" and 0 < value < len(positions):
            raise MemAttnError(
                f"there are {len(positions)} --abc-global-positions, but only {value} {option}"
            )
    if args.abc_control == "local_global":
        for option, value in slots.items():
            _check_local(option, value, args.abc_local_window or value // 2, len(positions))
    if args.abc_control == "rfa":
        for option, value in slots.items():
            if value % 2:
                raise MemAttnError(
                    f"{option} must be even with RFA, a sine and a cosine for each random vector, "
                    f"but is {value}"
                )
    if args.abc_max_length < 0:
        raise MemAttnError(
            "--abc-max-length must be 0 (the model's maximum of positions) or more, but is "
            f"{args.abc_max_length}"
        )
    check_least(args, "abc_stride", 1)
    for name, choices in (
        ("abc_activation", LOG_ACTIVATIONS),
        ("abc_phi_layers", ("shared", "separate")),
        ("abc_phi_heads", ("shared", "separate")),
    ):
        value = str(getattr(args, name))
        if value not in choices:
            raise MemAttnError(f"{flag(name)} must be one of {', '.join(choices)}, but is {value}")


def _check_local(flag: str, slots: int, local: int, positions: int) -> None:
    """Refuses a memory that does not hold both the local window and the global tokens."""
    if slots == 0:
        return
    if not 0 < local < slots:
        raise MemAttnError(
            f"--abc-local-window must leave some of the {slots} {flag}, but is {local}"
        )
    if positions > slots - local:
        raise MemAttnError(
            f"there are {positions} --abc-global-positions, but --abc-local-window leaves only "
            f"{slots - local} of the {slots} {flag}"
        )


def check_heads(args: Any, *sides: str) -> None:
    """Refuses sizes that heads cannot share out. sides: of "encoder", "decoder"."""
    for side in sides:
        size, heads = (getattr(args, f"{side}_{name}") for name in ("embed_dim", "attention_heads"))
        if heads < 1 or size % heads:
            raise MemAttnError(
                f"--{side}-attention-heads must divide --{side}-embed-dim {size}, but is {heads}"
            )
