"""The plugin's own errors, and how a fairseq command ends on one."""

import sys
from pathlib import Path
from types import TracebackType
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


def install_excepthook() -> None:
    """Lets a fairseq command that fails on a `MemAttnError` print its sentence, no traceback.

    So does a file that is missing or cannot be read, as fairseq reports it, and input that is not
    UTF-8, of which it says nothing. fairseq re-raises what happens while a checkpoint is loaded as
    an exception of its own, so the whole chain is searched. Programs other than fairseq's commands
    keep their tracebacks.
    """
    program = Path(sys.argv[0] if sys.argv else "")
    if program.name.startswith("fairseq-") or program.parent.name == "fairseq_cli":
        sys.excepthook = _print_sentence


def _print_sentence(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, MemAttnError):
        cause = cause.__cause__ or cause.__context__
    if cause is None and isinstance(error, OSError):
        cause = error
    if cause is None and isinstance(error, UnicodeDecodeError):
        cause = MemAttnError(_not_utf8(error))
    if cause is None:
        sys.__excepthook__(kind, error, traceback)
    else:
        print(f"{Path(sys.argv[0]).name}: error: {cause}", file=sys.stderr)


def _not_utf8(error: UnicodeDecodeError) -> str:
    """The line around the byte: its number in the input is not known here."""
    before, after = error.object[: error.start], error.object[error.start :]
    line = before.rpartition(b"\n")[2][-40:] + after.partition(b"\n")[0][:40]
    shown = line.decode(error.encoding, "replace")
    return (
        f"the input must be {error.encoding.upper()}, but is not at byte "
        f"0x{after[0]:02x} of {shown!r}; convert it, for example with iconv"
    )
