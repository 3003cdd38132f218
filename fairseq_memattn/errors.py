"""The plugin's own errors."""

from typing import Any

TRACEBACK = "MEMATTN_TRACEBACK"  # the environment variable by which errors show their traceback


class MemAttnError(ValueError):
    """Something the user can put right, told in one sentence."""


def flag(name: str) -> str:
    """An option, by its name in the program, as it is given on a command line."""
    return "--" + name.replace("_", "-")


def check_least(options: Any, name: str, least: int) -> None:
    """Raises MemAttnError where the option of that name is less than `least`."""
    value = getattr(options, name)
    if value < least:
        raise MemAttnError(f"{flag(name)} must be at least {least}, but is {value}")


def unforeseen(error: BaseException) -> str:
    """The sentence for an error that has no words of its own."""
    first_line = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first_line}; set {TRACEBACK}=1 to see the traceback"
