"""Strict reading of text, and writing of all files or none; shared by all preparations."""

import argparse
import errno
import os
import signal
import sys
import threading
import traceback
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from fairseq_memattn.errors import TRACEBACK

FULL = (errno.ENOSPC, errno.EDQUOT)  # a full disk or quota


class DataError(Exception):
    """A mistake in the user's data or options; the message is one sentence that names the place."""


def run_command(work: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> int:
    """Run a preparation; returns the exit status.

    The status is 1 after a DataError or OSError, whose message is printed, and its traceback
    before it if the user asks for it. After a signal that ends the command it is 128 and the
    number of the signal, as in shells: 130 after Ctrl-C.
    """
    try:
        with ended_by(signal.SIGTERM, signal.SIGHUP):
            work(args)
    except (DataError, OSError) as error:
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        said = reason(error) if isinstance(error, OSError) else error
        print(f"error: {said}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print("\ninterrupted; run the same command again to continue", file=sys.stderr)
        [number] = stop.args or [signal.SIGINT]
        return 128 + int(number)
    return 0


@contextmanager
def ended_by(*signals: signal.Signals) -> Iterator[None]:
    """Signals raise KeyboardInterrupt in the body, so that it removes its temporary files.

    A signal that the caller ignores or handles keeps its effect, as under `nohup`.
    """

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    ours: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        ours = [one for one in signals if signal.getsignal(one) == signal.SIG_DFL]
    for one in ours:
        signal.signal(one, stop)
    try:
        yield
    finally:
        for one in ours:
            signal.signal(one, signal.SIG_DFL)


def decode_line(raw: bytes, path: Path, number: int) -> str:
    """One line of a UTF-8 file without its line end.

    Raises DataError for bytes that are not UTF-8 and for a carriage return inside the line, at
    which Python's text mode, and therefore fairseq, would begin another line.
    """
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: not UTF-8 at byte {error.start + 1} of the line "
            f"(value 0x{raw[error.start]:02x})"
        ) from None
    line = line.removesuffix("\n").removesuffix("\r")
    if "\r" in line:
        raise DataError(f"{path}, line {number}: a carriage return inside the line")
    return line


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, split at newlines only. Raises DataError as `decode_line` does."""
    try:
        with open(path, "rb") as file:
            for number, raw in enumerate(file, start=1):
                if number == 1 and raw.startswith(BOM_UTF8):
                    raise DataError(
                        f"{path}, line 1: begins with a byte-order mark, which would become part "
                        "of the text; save the file as UTF-8 without it"
                    )
                yield decode_line(raw, path, number)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def refuse_overwriting(inputs: Sequence[Path], outputs: Sequence[Path], force: bool = True) -> None:
    """Raise DataError if an output is also an input or, without `force`, if it exists."""
    resolved = {os.path.realpath(path) for path in inputs}
    for path in outputs:
        if os.path.realpath(path) in resolved:
            raise DataError(f"{path}: the output would overwrite an input; change --output")
        if path.exists() and not force:
            raise DataError(f"{path} exists; choose another --output, or replace it with --force")


@contextmanager
def write_all_or_nothing(paths: Sequence[Path]) -> Iterator[list[TextIO]]:
    """Text files that appear at `paths` only if the body ends without an exception.

    Missing folders are created, and removed again after an exception. Raises DataError where a
    file cannot be written.
    """
    for path in paths:
        if path.exists() and not path.is_file():  # a device, for example, would be replaced
            raise DataError(f"{path}: cannot be written (not a regular file)")
    parts = [path.with_name(f"{path.name}.part{os.getpid()}") for path in paths]
    folders: list[Path] = []
    try:
        with ExitStack() as stack:
            for part in parts:
                folders += make_folders(part.parent)
            yield [
                stack.enter_context(open(part, "w", encoding="utf-8", newline="\n"))
                for part in parts
            ]
        for part, path in zip(parts, paths, strict=True):
            os.replace(part, path)
        folders.clear()
    except OSError as error:
        raise unwritten(error, paths[0]) from None
    except UnicodeEncodeError as error:
        raise DataError(
            f"{paths[0]}: the text contains U+{ord(error.object[error.start]):04X}, half of a "
            "surrogate pair, which UTF-8 cannot encode"
        ) from None
    finally:
        for part in parts:
            with suppress(OSError):  # not written yet, or already in its place
                part.unlink()
        for folder in reversed(folders):
            folder.rmdir()


def unwritten(error: OSError, path: Path) -> DataError:
    """The error for a file that cannot be written. path: where the error does not name the file."""
    message = f"{error.filename or path}: cannot be written ({error.strerror})"
    if error.errno in FULL:
        message += f"; free space for the folder {path.absolute().parent}"
    return DataError(message)


def reason(error: OSError) -> str:
    """An error of the system in one sentence. Python names no file where the output is full."""
    if error.filename is None and error.errno in FULL:
        return f"the standard output cannot be written: {error.strerror}"
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def make_folders(folder: Path) -> list[Path]:
    """Create a folder and its parents; returns those that were missing, outermost first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing[::-1]
