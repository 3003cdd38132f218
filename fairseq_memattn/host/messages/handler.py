"""How a fairseq command ends on an error: in one sentence; and warnings that are not shown."""

import atexit
import errno
import io
import logging
import os
import sys
import warnings
from pathlib import Path
from types import TracebackType

from fairseq_memattn.errors import TRACEBACK, MemAttnError, last_line, unforeseen

_report = logging.Handler.handleError
_unwritten: set[str] = set()  # the reasons why logs cannot be written that were told


def install_excepthook() -> None:
    """An error is one sentence; status 1 if output cannot be written.

    The environment variable MEMATTN_TRACEBACK=1 shows the traceback. Programs other than fairseq's
    commands keep their tracebacks. A command, other than a training, ends when the standard output
    cannot be written, without a message if its reader has closed the pipe.

    Raises MemAttnError for a standard output that is closed, except in a training.
    """
    program = Path(sys.argv[0] if sys.argv else "")
    if program.name.startswith("fairseq-") or program.parent.name == "fairseq_cli":
        sys.excepthook = _print_sentence
        trains = "train" in program.name  # which goes on without its log
        prepare_streams(trains)
        logging.Handler.handleError = _report_once  # type: ignore[method-assign]
        if not trains:
            atexit.unregister(_write_output)
            atexit.register(_write_output)
            logging.Handler.handleError = _report_or_raise  # type: ignore[method-assign]


def prepare_streams(silent: bool = False) -> None:
    """Makes the standard streams UTF-8, whatever the locale, and opens closed ones.

    Characters that are not UTF-8, such as those of a file's name, are printed with escapes.

    silent: whether the program does its work without a standard output

    Raises MemAttnError for a standard output that is closed, unless `silent`.
    """
    closed = sys.stdout is None
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                encoding="utf-8", errors="strict" if mode == "r" else "backslashreplace"
            )
    if closed and not silent:
        raise MemAttnError("the standard output is closed, so that nothing can be printed")


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
    _report_once(self, record)


def _report_once(self: logging.Handler, record: logging.LogRecord) -> None:
    """`logging.Handler.handleError`, which says once that a log cannot be written."""
    error = sys.exc_info()[1]
    if not isinstance(error, OSError):
        _report(self, record)
    elif str(error) not in _unwritten:
        _unwritten.add(str(error))
        print(f"a log cannot be written, so that its lines are lost: {error}", file=sys.stderr)


def sentence(error: BaseException) -> str:
    """What is wrong, in one line.

    fairseq re-raises what happens while a checkpoint is loaded, and what follows gradients that are
    not finite, as an exception of its own, so that the whole chain is searched for an error of this
    package and for theirs.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemAttnError):
            return last_line(cause)
        if isinstance(cause, FloatingPointError):
            return unforeseen(cause)
        cause = cause.__cause__ or cause.__context__
    return unforeseen(error)


def quiet_known_warnings() -> None:
    """Known warnings about older functions are not shown.

    None of it says anything about a user's command, and it hides what does. Commands that import
    fairseq before the plugin have its root logger, which shows all messages, those of hydra too.
    """
    logging.getLogger("hydra").setLevel(logging.INFO)
    for message in (
        r"hydra\.experimental\.\w+\(\) is no longer experimental",
        r"\nThe version_base parameter is not specified",
        r"In '.*': Usage of deprecated keyword in package header",
        r"\n'.*' is validated against ConfigStore schema",
        r"\nThe strict flag in the compose API is deprecated",
        r"`torch\.cuda\.amp\.autocast\(args\.\.\.\)` is deprecated",
        r"Using (a )?non-full backward hook",
        r"'pin_memory' argument is set as true but no accelerator is found",
        r"Support for mismatched key_padding_mask and attn_mask is deprecated",
    ):
        warnings.filterwarnings("ignore", message=message)
    # The targets before last, which no model reads, of a block with a single token
    blocks = r"fairseq\.data\.token_block_dataset"
    warnings.filterwarnings("ignore", message="overflow encountered", module=blocks)
