"""The flags by which fairseq-train builds a model again."""

import argparse
from typing import Any


def model_flags(arch: str, args: Any) -> list[str]:
    """`--arch` and the flags whose values differ from the architecture's defaults.

    args: all options of a model, by name; --max-positions is left out, as the task sets it
    """
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    parser = argparse.ArgumentParser(allow_abbrev=False)
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    defaults = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[arch](defaults)
    flags = ["--arch", arch]
    for action in parser._actions:
        value = getattr(args, action.dest, None)
        if action.dest == "max_positions" or value is None:
            continue
        if value == getattr(defaults, action.dest, action.default):
            continue
        option = max(action.option_strings, key=len)
        if action.nargs != 0:
            flags += [option, str(value)]
        elif value == action.const:
            flags.append(option)
    return flags
