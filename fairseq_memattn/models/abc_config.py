"""The flags of the ABC family, in one place for the command line and for YAML."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture

from fairseq_memattn.attention.controls import control_class
from fairseq_memattn.attention.controls.registry import for_each_control
from fairseq_memattn.attention.nn.carried import GATES
from fairseq_memattn.errors import MemAttnError, check_fields, option, size_option
from fairseq_memattn.modules.control_flags import (
    add_control_flags,
    control_options,
    option_errors,
    set_control_defaults,
    warn_of_unused,
)
from fairseq_memattn.modules.layer_attention import check_layers, controls_of_layers

# A class made at run time, which mypy takes for a variable.
SHARING = ChoiceEnum(["shared", "separate"])
DOCUMENT_GATES = ChoiceEnum(list(GATES))


@dataclass
class ABCControlConfig(FairseqDataclass):
    """The flags of all controls, beside those generated from the controls' own options."""

    abc_phi_layers: SHARING = option(  # type: ignore[valid-type]
        "shared",
        "one W_phi for all layers, as in the paper (under 1 percent more parameters than softmax "
        "attention), or a separate one in each layer",
    )
    abc_phi_heads: SHARING = option(  # type: ignore[valid-type]
        "separate",
        "whether the heads of a layer write with a separate control each, or all with a shared "
        "one, which costs less if heads times slots is close to the model size",
    )
    abc_low_rank: int = size_option(
        0,
        "R, the rank of updates of the projections of bounded attentions (LoRA); the weights of a "
        "trained model are frozen, and only the updates learn and what `memattn convert` has "
        "added, such as W_phi; 0 trains all weights",
        least=0,
    )


@dataclass
class ABCEncoderConfig(ABCControlConfig):
    abc_encoder_slots: int = size_option(
        64, "memory slots of the encoder's self-attention; the paper has 64 and 128", least=0
    )


@dataclass
class ABCLanguageModelConfig(ABCControlConfig):
    abc_causal_slots: int = size_option(
        8,
        "memory slots of the decoder's causal attention: its cost and its decoding state grow "
        "with this number and not with the length; 0 means softmax attention",
        least=0,
    )
    abc_causal_layers: str = option(
        "",
        "another causal attention in each decoder layer, the lowest first: softmax, CONTROL or "
        "CONTROL:SLOTS, with commas between them, such as window:8,mlp:64; the list begins again "
        "after its end; empty: all layers have that of --arch",
    )


@dataclass
class ABCDecoderConfig(ABCLanguageModelConfig):
    abc_cross_slots: int = size_option(
        32,
        "memory slots of the decoder's cross attention; the paper finds that there should be at "
        "least --abc-causal-slots; 0 means softmax attention",
        least=0,
    )


@dataclass
class PretrainedConfig(FairseqDataclass):
    """What pretrained translators have, and fairseq's transformer lacks."""

    abc_marian: bool = option(
        False,
        "positions from 0 with Marian's sinusoids, and a decoder that begins with the vector of "
        "padding, as in Marian's models",
    )
    abc_output_bias: bool = option(
        False, "a bias of the output projection, as in Marian's and in mBART's models"
    )


@dataclass
class ABCConfig(ABCDecoderConfig, PretrainedConfig):
    abc_encoder_slots: int = size_option(
        0,
        "memory slots of the encoder's self-attention; 0, the paper's choice for translation, "
        "means softmax attention",
        least=0,
    )
    abc_document_gate: DOCUMENT_GATES = option(  # type: ignore[valid-type]
        "decay",
        "with --stream: how much of the memory of earlier sentences a slot keeps at the beginning "
        "of a sentence: all of it (none), a learned share (decay), or a share that depends on the "
        "source sentence (sentence) or on the input of causal attention at the first token (first)",
    )


def register_controls(
    model: type,
    suffix: str,
    sizes: Mapping[str, Callable[[Any], None]],
    *,
    only_causal: bool = False,
) -> None:
    """Registers abc_CONTROL_SUFFIX for every control, now and whenever one is registered.

    Each is a subclass of `model` with an architecture for each size. Kernel attention is named
    KERNEL_SUFFIX.

    only_causal: leaves out the controls that have no causal form
    """

    def register(control: str) -> None:
        cls = control_class(control)
        if not (only_causal and cls.causal_refusal):
            name = f"{control}_{suffix}" if cls.is_kernel else f"abc_{control}_{suffix}"
            _register(model, name, control, sizes)

    for_each_control(register)


def _register(
    model: type, name: str, control: str, sizes: Mapping[str, Callable[[Any], None]]
) -> None:
    def architecture(args: Any, defaults: Callable[[Any], None]) -> None:
        if control_class(control).causal_refusal:
            args.abc_causal_slots = getattr(args, "abc_causal_slots", 0)
        set_control_defaults(args, control)
        defaults(args)

    register_model(name)(type(name, (model,), {"control": control, "__doc__": model.__doc__}))
    for size, defaults in sizes.items():
        # A function of its own for each, because fairseq keeps one architecture a function.
        register_model_architecture(name, name + size)(partial(architecture, defaults=defaults))


def add_arguments(
    parser: ArgumentParser, config: ABCControlConfig, control: str | None = None
) -> None:
    """Adds the flags of a family and of all controls, without defaults: those are the
    architecture's.

    control: the name of the model's control; None where a flag chooses it
    """
    add_dataclass_flags(parser, config)
    add_control_flags(parser, control)


def add_dataclass_flags(parser: ArgumentParser, config: FairseqDataclass) -> None:
    """Adds the fields as flags, without defaults."""
    gen_parser_from_dataclass(parser, config, delete_default=True)


def add_swish(parser: ArgumentParser) -> None:
    """Lets --activation-fn of fairseq's transformer be swish, as in Marian's models."""
    for action in parser._actions:
        if action.dest == "activation_fn" and action.choices is not None:
            action.choices = [*action.choices, "swish"]


def as_namespace(args: Any) -> Namespace:
    """The options of a model as a namespace, which fairseq's older models expect.

    YAML gives a DictConfig, of which `TransformerConfig.from_namespace` reads its own fields only.
    """
    return args if isinstance(args, Namespace) else Namespace(**args)


def set_defaults(args: Any, config: FairseqDataclass) -> None:
    """Sets in args (a namespace or a DictConfig) what neither user nor architecture has set."""
    for name in config._get_all_attributes():
        if getattr(args, name, None) is None:
            setattr(args, name, getattr(config, name))


def prefer(args: Any, **values: Any) -> None:
    """Sets in args what the user has not set."""
    for name, value in values.items():
        setattr(args, name, getattr(args, name, value))


def tiny_sizes(args: Any) -> None:
    """An encoder of four layers of 128, for a CPU."""
    prefer(args, encoder_layers=4, encoder_embed_dim=128)
    prefer(args, encoder_ffn_embed_dim=512, encoder_attention_heads=4)


def resolve_control(args: Any, control: str, config: ABCControlConfig, *kinds: str) -> None:
    """Completes the options of a model with a control, and checks them.

    kinds: those of "causal", "cross" and "encoder" that the model has

    Raises MemAttnError, which names the flag, the limit and the value.
    """
    args.abc_control = control
    set_defaults(args, config)
    set_control_defaults(args, control)
    slots = {f"--abc-{kind}-slots": getattr(args, f"abc_{kind}_slots") for kind in kinds}
    check_fields(args, type(config))
    layers = getattr(args, "abc_causal_layers", "")
    if layers and "causal" in kinds:
        check_layers(layers, args.decoder_layers, args.abc_causal_slots)
    controls = controls_of_layers(layers)
    if not controls and not any(slots.values()):
        raise MemAttnError(
            f"{' and '.join(slots)} must not all be 0: that is fairseq's plain transformer, "
            "which has an --arch of its own"
        )
    cls = control_class(control)
    if cls.causal_refusal and "causal" in kinds and args.abc_causal_slots:
        raise MemAttnError(
            f"--abc-causal-slots must be 0 with the control {control}, but is "
            f"{args.abc_causal_slots}: {cls.causal_refusal}"
        )
    if cls.passes_memory and getattr(args, "checkpoint_activations", False):
        raise MemAttnError(
            f"--checkpoint-activations does not work with the control {control}, whose layers "
            "pass their memory to the next"
        )
    with option_errors(kinds[0]):
        control_options(args, control)
    warn_of_unused(args, list(dict.fromkeys([control, *controls])))


def longest_text(args: Any, task: Any) -> int:
    """The longest sequence of a language model."""
    given = getattr(args, "max_target_positions", None)
    if given is not None:
        return given
    # Under YAML the task's options are not among the model's.
    options = getattr(task, "args", None) or task.cfg
    return options.max_target_positions or options.tokens_per_sample


def single_length(task: Any) -> Any:
    """The longest sequence of a task, for an encoder without a decoder.

    Raises MemAttnError for a task with source and target sequences.
    """
    longest = task.max_positions()
    if isinstance(longest, tuple):
        raise MemAttnError(
            "an encoder without a decoder (gmat_bert, abc_*_roberta) cannot be the model of a task "
            f"with source and target, as {type(task).__name__} is"
        )
    return longest


def check_joined(what: str, source: Any, target: Any) -> None:
    """Raises MemAttnError for two dictionaries. what: the flag that needs one"""
    if source.symbols != target.symbols:
        raise MemAttnError(
            f"{what} needs one dictionary for source and target (fairseq-preprocess "
            f"--joined-dictionary), but the dictionaries, of {len(source)} and {len(target)} "
            "symbols, differ"
        )
