"""How a fairseq command ends on an error: in one sentence, without a traceback."""

from __future__ import annotations

import argparse
import atexit
import errno
import io
import linecache
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from traceback import walk_tb
from types import TracebackType

from fairseq_memattn.errors import TRACEBACK, MemAttnError, flag, like, unforeseen
from fairseq_memattn.host.correctness.paths import splits_in
from fairseq_memattn.host.messages.hydra import check_before_training

SOURCES = ("fairseq", "fairseq_cli", "fairseq_memattn", "hydra")
LONGEST = 300  # characters of a message of fairseq or hydra, of which some list all models or tasks
# Lines that hydra and omegaconf add to a message, besides what is wrong.
DETAILS = ("full_key:", "object_type=", "reference_type=", "See https:")
APPEND = "To append to your config use +"  # refused as well in the parts that have a dataclass

_report = logging.Handler.handleError


def install_excepthook() -> None:
    """Lets a fairseq command end on an error with one sentence.

    The environment variable MEMATTN_TRACEBACK=1 shows the traceback. Programs other than fairseq's
    commands keep their tracebacks. A command, other than a training, ends when the standard output
    cannot be written, without a message if its reader has closed the pipe. A name of a file that is
    not UTF-8 is printed with escapes, where Python's logging prints a traceback of its own.
    """
    program = Path(sys.argv[0] if sys.argv else "")
    if program.name.startswith("fairseq-") or program.parent.name == "fairseq_cli":
        sys.excepthook = _print_sentence
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding == "utf-8":
            sys.stdout.reconfigure(errors="backslashreplace")
        if "train" not in program.name:  # which goes on without its log
            atexit.unregister(_write_output)
            atexit.register(_write_output)
            logging.Handler.handleError = _report_or_raise  # type: ignore[method-assign]


def install_hydra_excepthook() -> None:
    """Lets fairseq-hydra-train end on an error with one sentence, as other fairseq commands do.

    hydra prints errors itself, with frames of the traceback, unless HYDRA_FULL_ERROR is set.
    The configuration is checked in either case.
    """
    if not _is_hydra_train():
        return
    check_before_training()
    if "HYDRA_FULL_ERROR" not in os.environ:
        os.environ["HYDRA_FULL_ERROR"] = "1"
        install_excepthook()
        _check_config_file(sys.argv[1:])


def _is_hydra_train() -> bool:
    return Path(sys.argv[0] if sys.argv else "").name == "fairseq-hydra-train"


def _check_config_file(argv: list[str]) -> None:
    """Raises MemAttnError for a --config-name that --config-dir does not have.

    fairseq would train with the defaults of all options.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--config-name", "-cn")
    given, _ = parser.parse_known_args(argv)
    if given.config_name and given.config_dir and os.path.isdir(given.config_dir):
        file = Path(given.config_dir, f"{given.config_name.removesuffix('.yaml')}.yaml")
        if not file.is_file():
            raise MemAttnError(f"--config-name {given.config_name}: {file} does not exist")


def _print_sentence(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    program, unwritten = Path(sys.argv[0]).name, _error_of_output(error)
    if os.environ.get(TRACEBACK, "0") not in ("", "0"):
        sys.__excepthook__(kind, error, traceback)
    elif isinstance(error, KeyboardInterrupt):
        print(f"{program}: interrupted", file=sys.stderr)
    elif unwritten is not None:
        _tell_of_output(unwritten)
    else:
        print(f"{program}: error: {sentence(error)}", file=sys.stderr)


def _tell_of_output(error: OSError) -> None:
    """Says why the standard output cannot be written, unless its reader, such as `head`, ended."""
    if not isinstance(error, BrokenPipeError):
        reason = f"the standard output cannot be written: {error.strerror}"
        print(f"{Path(sys.argv[0]).name}: error: {reason}", file=sys.stderr)


def _write_output() -> None:
    """Writes what is printed when the program ends, or ends it with status 1."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _tell_of_output(error)
        sys.stderr.flush()
        os._exit(1)


def _error_of_output(error: BaseException) -> OSError | None:
    """The error if it is that of a standard output that cannot be written, else None.

    Such an error names no file, nor does that of another file: one more line shows which it is.
    What is not written by then is discarded; Python would report it when it ends.
    """
    if not isinstance(error, OSError) or error.filename is not None:
        return None
    if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EDQUOT):
        return None
    try:
        print(flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def _report_or_raise(self: logging.Handler, record: logging.LogRecord) -> None:
    """`logging.Handler.handleError`, which raises the error of the standard output.

    Python's logging prints a traceback for each message.
    """
    if isinstance(sys.exc_info()[1], OSError) and getattr(self, "stream", None) is sys.stdout:
        raise
    _report(self, record)


def sentence(error: BaseException) -> str:
    """What is wrong, in one line.

    fairseq re-raises what happens while a checkpoint is loaded as an exception of its own, so that
    the whole chain is searched for an error of this package. A missing file, input that is not
    UTF-8, a missing option and what fairseq itself says of wrong input have a sentence too. Any
    other exception is named, with the way to its traceback.
    """
    for cause in _chain(error):
        if isinstance(cause, MemAttnError):
            return _own_words(cause)
    if type(error).__name__ == "MissingMandatoryValue":
        option = str(error).partition("\n")[0].rpartition(": ")[2]
        return f"{flag(option.rpartition('.')[2])} must be given"
    if type(error).__module__.partition(".")[0] in ("hydra", "omegaconf", "yaml"):
        return _of_configuration(error)
    if isinstance(error, OSError):
        return _of_file(error)
    for cause in _chain(error):
        if isinstance(cause, UnicodeDecodeError):
            return _not_utf8(cause)
    if isinstance(error, ImportError) and "import_user_module" in _functions(error):
        return f"{_user_dir()} cannot be imported: {error}"
    if _raised_by_a_check(error):
        return shorten(str(error), LONGEST, placeholder=" ...")
    return unforeseen(error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, and those that led to it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _user_dir() -> str:
    return "common.user_dir" if _is_hydra_train() else "--user-dir"


def _functions(error: BaseException) -> list[str]:
    """The names of the functions through which an exception came, outermost first."""
    return [frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__)]


def _of_file(error: OSError) -> str:
    """fairseq raises some errors with nothing but a path, and some in words of its own."""
    if error.errno is None and isinstance(error, FileExistsError):
        return f"{error} exists already"
    if isinstance(error, FileExistsError) and not os.path.isdir(error.filename or "."):
        return f"{_option_of(error.filename)}{error.filename} must be a folder, but is a file"
    missing = re.fullmatch(r"(?:Model file not found: (.+)|file (.+) not found)", str(error))
    if missing:
        path = missing[1] or missing[2]
        return f"{_option_of(path)}{path} does not exist"
    if error.errno is None and os.path.isabs(str(error)):
        option = f"{_user_dir()} " if _functions(error)[-1:] == ["import_user_module"] else ""
        return f"{option}{error} does not exist"
    sought = re.fullmatch(r"Dataset not found: (\S+) \((.*)\)", str(error))
    if sought:
        folder = sought[2] if os.path.isdir(sought[2]) else os.path.dirname(sought[2])
        return f"{error}; {folder} has {splits_in(folder)}{_subset_option(sought[1])}"
    return f"{_option_of(error.filename) if error.filename else ''}{error}"


def _option_of(file: object) -> str:
    """The option of the command line that names a file, or the folder that has it."""
    path = os.path.abspath(str(file))
    for flag_, value in _given_options():
        for part in filter(None, value.split(os.pathsep)):
            if f"{path}/".startswith(f"{os.path.abspath(part)}/"):
                return f"{flag_}: "
    return ""


def _given_options() -> Iterator[tuple[str, str]]:
    """The options of the command line, with their values; `--option=value` is a form of them."""
    for argument, following in zip(sys.argv, [*sys.argv[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        if name.startswith("--"):
            yield name, value if equals else following


def _subset_option(split: str) -> str:
    """The option of the command line that names a split."""
    for flag_, value in _given_options():
        if flag_.endswith("-subset") and split in value.split(","):
            return f"; {flag_} must name one of them"
    return ""


def _of_configuration(error: BaseException) -> str:
    """The message of hydra, omegaconf or PyYAML and of its cause, in one line."""
    texts = [str(error)] if error.__cause__ is None else [str(error), str(error.__cause__)]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    hidden = DETAILS if "is not in struct" in "".join(texts) else (*DETAILS, APPEND)
    told = dict.fromkeys(line.rstrip(".") for line in lines if not line.startswith(hidden))
    message = f"configuration: {'; '.join(filter(None, told))}{_keys_like(error)}"
    return shorten(message, LONGEST, placeholder=" ...")


def _keys_like(error: BaseException) -> str:
    """The keys of a configuration that are like the unknown one of an error of omegaconf."""
    for cause in _chain(error):
        node = getattr(cause, "parent_node", None)
        if node is not None and type(cause).__name__ in ("ConfigKeyError", "ConfigAttributeError"):
            return like(str(getattr(cause, "key", "")), map(str, node))
    return ""


def _own_words(error: MemAttnError) -> str:
    """The message, without what a worker of torch's DataLoader adds: a traceback in the text."""
    text = str(error)
    if text.startswith("Caught "):
        return re.sub(r"^[\w.]+: ", "", text.strip().splitlines()[-1])
    return text


def _raised_by_a_check(error: BaseException) -> bool:
    """Whether fairseq raised the exception itself, with a message for the user.

    So do an `assert` and a `raise` in its source, other than an operation that fails.
    """
    places = list(walk_tb(error.__traceback__))
    if not places or not str(error):
        return False
    frame, number = places[-1]
    if frame.f_globals.get("__name__", "").partition(".")[0] not in SOURCES:
        return False
    line = linecache.getline(frame.f_code.co_filename, number).strip()
    return isinstance(error, AssertionError) or line.startswith("raise ")


def _not_utf8(error: UnicodeDecodeError) -> str:
    """The line around the byte: its number in the input is not known here."""
    before, after = error.object[: error.start], error.object[error.start :]
    line = before.rpartition(b"\n")[2][-40:] + after.partition(b"\n")[0][:40]
    shown = line.decode(error.encoding, "replace")
    return (
        f"the input must be {error.encoding.upper()}, but is not at byte "
        f"0x{after[0]:02x} of {shown!r}; convert it, for example with iconv"
    )
