"""What this plugin, and folders of --user-dir, have registered: architectures, sizes, flags."""

from __future__ import annotations

import inspect
import logging
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

PREFIXES = ("abc_", "t5_", "t5mem_", "gmat_")  # of this plugin's own options
SIDES = ["encoder", "decoder"]
VOCABULARY = 299_993  # a prime number, which is no other dimension of a weight
LENGTH = 512


@dataclass(frozen=True)
class Option:
    """A flag of an architecture, with the architecture's default."""

    flag: str
    default: Any
    help: str
    choices: tuple[str, ...]
    own: bool  # of this plugin, and not of fairseq's models


@dataclass(frozen=True)
class Architecture:
    """A name for --arch.

    pattern: the name with CONTROL in place of the control, of ABC or kernel attention
    kind: encoder-decoder, language model or encoder
    layers, size, feed_forward, heads: of the encoder and the decoder, where they differ
    slots: the memory slots, by the name of their flag
    """

    name: str
    pattern: str
    kind: str
    summary: str
    layers: str
    size: str
    feed_forward: str
    heads: str
    slots: dict[str, int]

    @property
    def control(self) -> str:
        """What CONTROL stands for; empty for a family without controls."""
        prefix, found, suffix = self.pattern.partition("CONTROL")
        return self.name.removeprefix(prefix).removesuffix(suffix) if found else ""


def architectures() -> list[Architecture]:
    """Those that are registered beside fairseq's own, in the order of their patterns.

    Registers nothing by itself.
    """
    from fairseq.models import ARCH_MODEL_REGISTRY

    return [
        _architecture(name, kind)
        for name, kind in ARCH_MODEL_REGISTRY.items()
        if not kind.__module__.startswith(("fairseq.", "examples."))
    ]


def options(name: str) -> list[Option]:
    """The flags of an architecture; of the controls' flags, those that its control has."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    kind = ARCH_MODEL_REGISTRY[name]
    parser = ArgumentParser(argument_default=SUPPRESS, add_help=False)
    kind.add_args(parser)
    defaults = _defaults(name)
    return [
        Option(
            flag=max(action.option_strings, key=len),
            default=defaults.get(action.dest, False if action.nargs == 0 else None),
            help=(action.help or "") % {**vars(action), "prog": name},
            choices=tuple(map(str, action.choices or ())),
            own=action.dest.startswith(PREFIXES),
        )
        for action in parser._actions
        if action.help != SUPPRESS and action.dest not in _of_other_controls(kind)
    ]


def parameters(name: str) -> int:
    """The number of parameters, without those whose number depends on the vocabulary.

    The model is built of tensors without storage.
    """
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.modules import AdaptiveInput, AdaptiveSoftmax

    args = Namespace(**_defaults(name))
    for side in ("source_", "target_", ""):
        setattr(args, f"max_{side}positions", LENGTH)
    args.tokens_per_sample = LENGTH
    with _quiet(), _without_storage():
        model = ARCH_MODEL_REGISTRY[name].build_model(args, _task(args))
    of_vocabulary = {
        parameter
        for module in model.modules()
        if isinstance(module, AdaptiveInput | AdaptiveSoftmax)
        for parameter in module.parameters()
    }
    return sum(
        parameter.numel()
        for parameter in model.parameters()
        if parameter not in of_vocabulary and VOCABULARY not in parameter.shape
    )


def _architecture(name: str, kind: Any) -> Architecture:
    defaults = _defaults(name)
    # fairseq's RoBERTa also calls its one stack a decoder, in some of its options.
    sides = {"language model": ["decoder"], "encoder": ["encoder"]}.get(_kind(kind), SIDES)

    def sizes(option: str) -> str:
        found = [defaults.get(f"{side}_{option}") for side in sides]
        found = [number for number in found if number is not None]
        return " + ".join(map(str, found if option == "layers" else dict.fromkeys(found)))

    inner = sizes("ffn_embed_dim")
    if inner == "0":  # abc_llama derives it
        from fairseq_memattn.networks.decoder import DecoderSizes

        inner = str(DecoderSizes(1, defaults["decoder_embed_dim"]).inner_dim)
    control = getattr(kind, "control", "")
    prefix = next((p for p in (f"abc_{control}_", f"{control}_") if name.startswith(p)), "")
    return Architecture(
        name=name,
        pattern=f"CONTROL_{name.removeprefix(prefix)}" if control and prefix else name,
        kind=_kind(kind),
        summary=(inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " "),
        layers=sizes("layers"),
        size=sizes("embed_dim"),
        feed_forward=inner,
        heads=sizes("attention_heads"),
        slots={
            option: value
            for option, value in sorted(defaults.items())
            if value and option.startswith(PREFIXES) and option.endswith(("_slots", "gmat_memory"))
        },
    )


def _kind(kind: Any) -> str:
    from fairseq.models import FairseqEncoderModel, FairseqLanguageModel

    if issubclass(kind, FairseqLanguageModel):
        return "language model"
    return "encoder" if issubclass(kind, FairseqEncoderModel) else "encoder-decoder"


def _defaults(name: str) -> dict[str, Any]:
    from fairseq.models import ARCH_CONFIG_REGISTRY

    args = Namespace()
    ARCH_CONFIG_REGISTRY[name](args)
    return vars(args)


def _of_other_controls(kind: Any) -> set[str]:
    """The options of controls that the control of a model does not have."""
    from fairseq_memattn.attention.controls.registry import all_controls, options_by_name

    control = getattr(kind, "control", None)
    if control is None:
        return set()
    every, own = (options_by_name(names) for names in (list(all_controls()), [control]))
    return {f"abc_{option}" for option in every if option not in own}


def _task(args: Namespace) -> Any:
    """As much of a task as the models ask for."""
    from types import SimpleNamespace

    from fairseq.data import Dictionary

    class Vocabulary(Dictionary):
        """Has every symbol, such as a separator that a model looks up."""

        def __len__(self) -> int:
            return VOCABULARY

        def index(self, sym: str) -> int:
            return int(self.indices.get(sym, self.nspecial))

    words = Vocabulary()
    return SimpleNamespace(
        source_dictionary=words,
        target_dictionary=words,
        dictionary=words,
        max_positions=lambda: LENGTH,
        args=args,
        cfg=args,
    )


@contextmanager
def _without_storage() -> Iterator[None]:
    """Makes all new tensors meta tensors."""
    import torch
    from torch.overrides import TorchFunctionMode

    class StayingMeta(TorchFunctionMode):
        """fairseq's `init_bert_params` draws on the CPU, to which a meta tensor cannot go."""

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.Tensor.cpu and args[0].is_meta:
                return args[0]
            return func(*args, **(kwargs or {}))

    with torch.device("meta"), StayingMeta():
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Without fairseq's log of a model that it builds."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
