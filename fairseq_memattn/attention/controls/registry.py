"""Names of controls. `register_control` adds one, from this package or from outside."""

import re
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import torch

from fairseq_memattn.attention.controls.base import Control
from fairseq_memattn.attention.controls.options import Sizes, check_options_class, option_fields

# Strategies of the ABC paper and their like: `--arch abc_NAME_transformer`.
CONTROLS: dict[str, type[Control]] = {}
# Kernel attention, in the place of a control, for comparison: `--arch NAME_transformer`.
KERNEL_ATTENTION: dict[str, type[Control]] = {}

C = TypeVar("C", bound=type[Control])
_observers: list[Callable[[str], None]] = []


def register_control(name: str) -> Callable[[C], C]:
    """Registers the decorated subclass of `Control` under a name.

    `ABCAttention(..., control=name)` finds it. With fairseq, `--arch abc_NAME_transformer`,
    `abc_NAME_transformer_lm` (if it has a causal form) and `abc_NAME_roberta` have it.

    Raises ValueError for a name that is taken or is no word of lower-case letters, digits and
    underscores, and TypeError for a missing name.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(
            "the name of a control must consist of lower-case letters, digits and underscores, and "
            f"begin with a letter, but is {name!r}"
        )

    def register(cls: C) -> C:
        check_options_class(name, cls.Options)
        known = all_controls().get(name)
        # By name: a module that is loaded again defines its class again.
        if known and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"the control {name!r} is already registered, by {known.__module__}")
        cls.tagged_state = _state_of(name, cls)
        (KERNEL_ATTENTION if cls.is_kernel else CONTROLS)[name] = cls
        if known is None:
            for observer in _observers:
                observer(name)
        return cls

    return register


def _state_of(name: str, cls: type[Control]) -> type | None:
    """A named tuple as `cls.state_class`, which no other control has, in the module of the control.

    `torch.load` takes it without further ado.
    """
    plain = cls.state_class
    if plain is None:
        return None
    title = f"{''.join(word.title() for word in name.split('_'))}State"
    make, made = cast(Any, namedtuple), cast(Any, plain)
    if title != plain.__name__:
        made = make(title, made._fields, module=cls.__module__)
        made.__doc__ = f"A `{plain.__name__}` of the control {name!r}."
        made.reorder = cast(Any, plain).reorder
        if cls.__module__ in sys.modules:  # else there is no name to pickle it by
            setattr(sys.modules[cls.__module__], title, made)
    torch.serialization.add_safe_globals([plain, made])
    return made


def state_classes() -> dict[str, type]:
    """The classes of the states of all controls by name."""
    controls = all_controls().values()
    kinds = [kind for cls in controls for kind in (cls.state_class, cls.tagged_state)]
    return {kind.__name__: kind for kind in kinds if kind is not None}


def all_controls() -> dict[str, type[Control]]:
    """Every registered class by name, kernel attention included."""
    return CONTROLS | KERNEL_ATTENTION


def control_class(name: str) -> type[Control]:
    """The class registered under a name. Raises ValueError, which lists the names, if none is."""
    known = all_controls()
    if name not in known:
        raise ValueError(f"`control` must be one of {', '.join(known)}, but is {name!r} instead.")
    return known[name]


def make_control(name: str, sizes: Sizes, **options: Any) -> Control:
    """A control by name. options: those that its class declares.

    Raises ValueError for an unknown name or a value out of range, TypeError for an option that
    the control does not have.
    """
    cls = control_class(name)
    unknown = options.keys() - option_fields(cls.Options).keys()
    if unknown:
        raise TypeError(f"the control {name!r} has no option `{min(unknown)}`")
    return cls(sizes, cls.Options(**options))


def for_each_control(observer: Callable[[str], None]) -> None:
    """Calls `observer` with the name of every control, now and whenever one is registered."""
    _observers.append(observer)
    for name in all_controls():
        observer(name)


def options_by_name(names: Iterator[str] | list[str]) -> dict[str, list[tuple[str, Any]]]:
    """Which of the named controls have an option: (control, field) pairs by the option's name."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for name in names:
        for option, entry in option_fields(control_class(name).Options).items():
            found.setdefault(option, []).append((name, entry))
    return found
