"""Names and types of the options of a model, and checks of them for fairseq-hydra-train.

fairseq checks the names and types of options whose model has a dataclass, and of no others.
"""

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any

from fairseq_memattn.errors import MemAttnError, flag, like


def check_model_options(cfg: Any) -> None:
    """Raises MemAttnError for an option that the model does not have, or that must be a number."""
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY

    model = cfg.model
    name = str(getattr(model, "_name", ""))
    kind = ARCH_MODEL_REGISTRY.get(name)
    if kind is None or name in MODEL_DATACLASS_REGISTRY or not isinstance(model, Mapping):
        return
    types = option_types(kind)
    defaults = _completed(name)
    known = {"_name", *types, *defaults, *cfg.task}
    for option, value in model.items():
        if option not in known:
            raise MemAttnError(f"model.{option} is no option of {name}{like(option, known)}")
        if value is None:
            value = _completed(name, **{option: None}).get(option)
        wanted = _values(types.get(option), defaults.get(option))
        may_be_none = defaults.get(option) is None
        if wanted and not (isinstance(value, int | float) or (value is None and may_be_none)):
            raise MemAttnError(f"{flag(option)} must be {wanted}, but is {value!r}")


def option_types(kind: Any) -> dict[str, Any]:
    """The options of the command line of a model's class, and the functions that read them."""
    parser = ArgumentParser(argument_default=SUPPRESS, add_help=False)
    kind.add_args(parser)
    return {action.dest: action.type for action in parser._actions}


def _completed(name: str, **options: Any) -> dict[str, Any]:
    """Options with the defaults of an architecture."""
    from fairseq.models import ARCH_CONFIG_REGISTRY

    completed = Namespace(**options)
    ARCH_CONFIG_REGISTRY[name](completed)
    return vars(completed)


def _values(kind: Any, default: Any) -> str:
    """The values that an option takes, or nothing if they are neither numbers nor booleans."""
    if isinstance(default, bool):
        return "true or false"
    return "a number" if kind in (int, float) or isinstance(default, int | float) else ""
