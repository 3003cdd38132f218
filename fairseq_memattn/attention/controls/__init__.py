"""Control strategies: how the tokens of a sequence are written into the slots of a memory.

Every file of this folder is imported here, and registers the strategy that it holds.
`docs/controls.md` says how to add one, in this folder or outside of the package.
"""

from importlib import import_module
from pkgutil import iter_modules

from fairseq_memattn.attention.controls.base import Control, Shared, Tokens
from fairseq_memattn.attention.controls.options import ControlOptions, OptionError, Sizes, option
from fairseq_memattn.attention.controls.registry import (
    CONTROLS,
    KERNEL_ATTENTION,
    all_controls,
    control_class,
    make_control,
    register_control,
)

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "CONTROLS",
    "KERNEL_ATTENTION",
    "Control",
    "ControlOptions",
    "OptionError",
    "Shared",
    "Sizes",
    "Tokens",
    "all_controls",
    "control_class",
    "make_control",
    "option",
    "register_control",
]
