"""The options of the registered controls as flags of fairseq."""

import logging
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, get_type_hints

from fairseq_memattn.attention.controls import ControlOptions, OptionError, control_class
from fairseq_memattn.attention.controls.options import option_fields
from fairseq_memattn.attention.controls.registry import all_controls, options_by_name
from fairseq_memattn.errors import MemAttnError, flag

logger = logging.getLogger(__name__)


def add_control_flags(parser: ArgumentParser, control: str | None = None) -> None:
    """Adds a flag --abc-OPTION for every option of every registered control.

    control: the name of the control whose types and choices have priority; None if a flag chooses
        the control
    """
    for name, of_controls in options_by_name(_first(control)).items():
        owner, entry = of_controls[0]
        parser.add_argument(
            flag(f"abc_{name}"),
            help=_help(of_controls),
            **_parsing(get_type_hints(control_class(owner).Options)[name], entry),
        )


def set_control_defaults(args: Any, control: str | None = None) -> None:
    """Sets the options of all registered controls that are not set to their defaults.

    control: the name of the control whose defaults have priority; None if a flag chooses it
    """
    for name, of_controls in options_by_name(_first(control)).items():
        if getattr(args, f"abc_{name}", None) is None:
            owner, entry = of_controls[0]
            own = control_class(owner).Options.flag_defaults if owner == control else {}
            setattr(args, f"abc_{name}", _as_flag(own.get(name, entry.default)))


def control_options(args: Any, control: str) -> ControlOptions:
    """The options of a control, from the attributes `abc_*` of args.

    Raises OptionError for a value out of range.
    """
    cls = control_class(control).Options
    values, kinds = {}, get_type_hints(cls)
    for name in option_fields(cls):
        kind = kinds[name]
        value = getattr(args, f"abc_{name}")
        values[name] = _positions(name, value) if kind == tuple[int, ...] else kind(value)
    return cls(**values)


def warn_of_unused(args: Any, controls: list[str]) -> None:
    """Warns of options with other values than their defaults that none of the controls has."""
    own = options_by_name(controls)
    user = f"the control {', '.join(controls)}" if controls else "softmax attention"
    for name, of_controls in options_by_name(list(all_controls())).items():
        value = getattr(args, f"abc_{name}", None)
        defaults = [_as_flag(entry.default) for _, entry in of_controls]
        if name not in own and value is not None and value not in defaults:
            logger.warning(f"{flag(f'abc_{name}')} {value} is not used by {user}")


def _first(control: str | None) -> list[str]:
    """The names of all controls, beginning with one of them."""
    return [*([control] if control else []), *(name for name in all_controls() if name != control)]


@contextmanager
def option_errors(kind: str) -> Iterator[None]:
    """Turns an `OptionError` into a MemAttnError that names the flag.

    kind: of the attention, whose slots are --abc-KIND-slots
    """
    try:
        yield
    except OptionError as error:
        name = f"{kind}_slots" if error.name == "slots" else error.name
        raise MemAttnError(f"{flag(f'abc_{name}')} {error.problem}") from None


def _help(of_controls: Iterable[tuple[str, Any]]) -> str:
    """Every help text, after the names of the controls that have it."""
    texts: dict[str, list[str]] = {}
    for control, entry in of_controls:
        texts.setdefault(entry.metadata["help"], []).append(control)
    return "; ".join(f"{', '.join(controls)}: {text}" for text, controls in texts.items())


def _parsing(kind: Any, entry: Any) -> dict[str, Any]:
    """The arguments of `add_argument` for an option of this type."""
    if kind is bool:
        return {"action": "store_true"}
    if kind == tuple[int, ...]:
        return {"type": str, "metavar": "P,P,..."}
    choices = entry.metadata["choices"]
    return {"type": kind, "choices": list(choices)} if choices else {"type": kind}


def _positions(name: str, given: Any) -> tuple[int, ...]:
    """Sorted positions, from a sequence (in YAML) or a string with commas."""
    words = given.split(",") if isinstance(given, str) else [str(number) for number in given]
    words = [word.strip() for word in words if word.strip()]
    if not all(word.isdecimal() for word in words):
        raise OptionError(
            name, f"must be positions from 0 with commas between them, but is {given!r}"
        )
    return tuple(sorted({int(word) for word in words}))


def _as_flag(default: Any) -> Any:
    """A default in the form of the flag's value: positions are a string with commas."""
    return ",".join(map(str, default)) if isinstance(default, tuple) else default
