"""The flags by which fairseq-train builds a model again."""

import argparse
from typing import Any


def model_flags(arch: str, args: Any) -> list[str]:
    """`--arch` and what the architecture does not set by itself.

    args: the options of a model, by name, complete; --max-positions is left to the task
    """
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    parser = argparse.ArgumentParser(allow_abbrev=False)
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    usual = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[arch](usual)
    told = ["--arch", arch]
    for action in parser._actions:
        value = getattr(args, action.dest, None)
        if action.dest == "max_positions" or value is None:
            continue
        if value == getattr(usual, action.dest, action.default):
            continue
        option = max(action.option_strings, key=len)
        if action.nargs != 0:
            told += [option, str(value)]
        elif value == action.const:
            told.append(option)
    return told
