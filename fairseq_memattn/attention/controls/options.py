"""The sizes that every control is told, and the options that a control declares for itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, get_type_hints

KINDS = ("causal", "cross", "encoder")
LARGEST = 2**31 - 1


class OptionError(ValueError):
    """An option that is out of range.

    name: of the option; problem: the rest of the sentence. fairseq's models put the name of the
    flag in the place of the name of the option.
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"`{name}` {problem}")
        self.name, self.problem = name, problem


@dataclass(frozen=True)
class Sizes:
    """Where a control works.

    embed_dim: E, the size of the representations x
    slots: M, the memory slots
    heads: the number of controls of the layer; 1 if all heads share one
    attention_heads: H, and head_dim: D, of the attention
    max_positions: the longest sequence of the model
    kind: "causal" and "encoder" attention read the sequence itself, "cross" another one

    Raises OptionError for a size below 1.
    """

    embed_dim: int
    slots: int
    heads: int = 1
    attention_heads: int = 1
    head_dim: int = 0
    max_positions: int = 1024
    kind: str = "cross"

    def __post_init__(self) -> None:
        for name in ("embed_dim", "slots", "heads", "attention_heads", "max_positions"):
            if not isinstance(getattr(self, name), int):
                raise OptionError(name, f"must be an int, but is {getattr(self, name)!r}")
            check_at_least(name, getattr(self, name), 1)
        check_choice("kind", self.kind, KINDS)


@dataclass(frozen=True)
class ControlOptions:
    """The options of a control that has none; the base of all others.

    The fields are made by `option`. fairseq's flags, their help and the arguments of
    `ABCAttention` are generated from them.

    flag_defaults: of flags, where they differ from the arguments', which weights of layers saved
        without their options depend on
    """

    flag_defaults: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        types = get_type_hints(type(self))
        for name, entry in option_fields(type(self)).items():
            value, limits = getattr(self, name), entry.metadata
            check_kind(name, value, types[name])
            if limits["at_least"] is not None:
                check_at_least(name, value, limits["at_least"])
            if limits["choices"]:
                check_choice(name, value, limits["choices"])

    def check(self, sizes: Sizes) -> None:
        """Raises OptionError for options that do not fit the sizes."""

    def for_layer(self, layer: int) -> "ControlOptions":
        """The options of a layer, from 0, that does not share its control with others."""
        return self


def option(
    default: Any, help: str, *, at_least: int | None = None, choices: tuple[Any, ...] = ()
) -> Any:
    """A field of `ControlOptions`: its default, its help text and its limits."""
    return field(default=default, metadata={"help": help, "at_least": at_least, "choices": choices})


# Names that arguments of layers or flags of models have already.
RESERVED = frozenset(
    "embed_dim num_heads slots control causal source_dim dropout bias share_control max_positions "
    "num_kv_heads head_dim qk_norm rotary positions "
    "causal_slots cross_slots encoder_slots phi_layers phi_heads".split()
)
TYPES = (bool, int, float, str, tuple[int, ...])


def check_options_class(control: str, options: Any) -> None:
    """Raises TypeError for a class that flags cannot be generated from, ValueError for a name.

    control: the name of the control that declares the options
    """
    if "__dataclass_fields__" not in vars(options):
        raise TypeError(f"`Options` of the control {control!r} must have the @dataclass decorator")
    types = get_type_hints(options)
    for name, entry in option_fields(options).items():
        if "help" not in entry.metadata:
            raise TypeError(
                f"the option `{name}` of the control {control!r} must be made with "
                "option(default, help)"
            )
        if types[name] not in TYPES:
            raise TypeError(
                f"the option `{name}` of the control {control!r} must be a bool, int, float, str "
                f"or tuple[int, ...], but is {types[name]}"
            )
        if name in RESERVED:
            raise ValueError(
                f"the option `{name}` of the control {control!r} must have another name, because "
                "an argument of the layers or a flag of the models has it"
            )
    try:
        options()
    except OptionError as error:
        raise ValueError(f"a default of the control {control!r} is refused: {error}") from None


def option_fields(options: type[ControlOptions]) -> Mapping[str, Any]:
    """The fields of an options class by name."""
    return {entry.name: entry for entry in fields(options)}


NAMES = {bool: "a bool", int: "an int", float: "a number", str: "a str"}


def check_kind(name: str, value: Any, kind: Any) -> None:
    """Raises OptionError for a value of another type than one of TYPES; ints are floats, too."""
    if kind not in NAMES:
        is_listed = isinstance(value, Iterable) and not isinstance(value, str)
        if not is_listed or not all(is_kind(item, int) for item in value):
            raise OptionError(name, f"must be a tuple of ints, but is {value!r}")
    elif not is_kind(value, kind):
        raise OptionError(name, f"must be {NAMES[kind]}, but is {value!r}")


KINDS_OF_NUMBERS: dict[type, type] = {int: Integral, float: Real}


def is_kind(value: object, kind: type) -> bool:
    """Whether a value is of a kind, numbers of NumPy and 0 and 1 for bools included."""
    if kind is bool or isinstance(value, bool):
        return kind is bool and value in (False, True)
    return isinstance(value, KINDS_OF_NUMBERS.get(kind, kind))


def check_at_least(name: str, value: Any, least: int) -> None:
    """Raises OptionError for a number below `least` or above LARGEST."""
    if value > LARGEST:
        raise OptionError(name, f"must be at most {LARGEST}, but is {value}")
    if not value >= least:  # NaN compares as False
        raise OptionError(name, f"must be at least {least}, but is {value}")


def check_choice(name: str, value: object, choices: tuple[Any, ...]) -> None:
    """Raises OptionError for a value that is not among `choices`."""
    if value not in choices:
        raise OptionError(name, f"must be one of {', '.join(map(str, choices))}, but is {value}")
