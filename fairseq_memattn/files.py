"""One strict reader of text, and one writer that makes a file whole or not at all."""

import errno
import fcntl
import gzip
import json
import math
import os
import shutil
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, TextIO, cast

from fairseq_memattn.errors import MemAttnError

UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # file systems without locks

# --------------------------------------------------------------------------- reading


def decode_line(raw: bytes, path: Path | str, number: int, *, returns: bool = True) -> str:
    """One line of a UTF-8 file without its line end.

    number: of the line, from 1
    returns: whether a carriage return may be inside the line. Python's text mode, and therefore
        fairseq, begins another line there.

    Raises MemAttnError, which names file and line, for bytes that are not UTF-8, for a carriage
    return, and for a byte-order mark in line 1, which would become part of the text.
    """
    if number == 1 and raw.startswith(BOM_UTF8):
        raise MemAttnError(f"{path}, line 1: begins with a byte-order mark; save it without")
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MemAttnError(
            f"{path}, line {number}: not UTF-8 at byte {error.start + 1} of the line "
            f"(0x{raw[error.start]:02x})"
        ) from None
    line = line.removesuffix("\n").removesuffix("\r")
    if not returns and "\r" in line:
        raise MemAttnError(f"{path}, line {number}: a carriage return inside the line")
    return line


def open_bytes(path: Path) -> BinaryIO:
    """A file for reading, decompressed if its name ends in .gz."""
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else open(path, "rb")


def iterate_lines(path: Path, *, returns: bool = True) -> Iterator[str]:
    """The lines of a UTF-8 file, split at newlines only. Raises MemAttnError as `decode_line`.

    A file whose name ends in .gz is decompressed.
    """
    with open_bytes(path) as file:
        for number, raw in enumerate(file, start=1):
            yield decode_line(raw, path, number, returns=returns)


def read_lines(path: Path, *, returns: bool = True) -> list[str]:
    """The lines of a UTF-8 file, as `iterate_lines`."""
    return list(iterate_lines(path, returns=returns))


def starts_of_documents(ids: Sequence[str], where: str) -> list[int]:
    """The first line of each document, from 0. where: the file of the ids, one a line

    Raises MemAttnError for an id that occurs again after its document has ended.
    """
    first: dict[str, int] = {}
    for line, id in enumerate(ids):
        if first.setdefault(id, line) != line and ids[line - 1] != id:
            raise MemAttnError(
                f"{where}, line {line + 1}: document id {id!r} began at line {first[id] + 1} and "
                "had already ended; a document must be contiguous"
            )
    return list(first.values())


def read_json(path: Path, **options: Any) -> Any:
    """The content of a UTF-8 file. options: of `json.loads`

    Raises MemAttnError, which names the file, for what is not JSON, nested too deeply, or a number
    of too many digits.
    """
    return parse_json("\n".join(read_lines(path)), str(path), **options)


def parse_json(text: str, where: str, **options: Any) -> Any:
    """The value of a text, as `read_json`. where: the file and the line, for error messages"""
    try:
        return json.loads(text, **options)
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if "\n" in text else ""
        raise MemAttnError(f"{where}{line}: not JSON: {error.msg}") from None
    except RecursionError:
        raise MemAttnError(f"{where}: the JSON is nested too deeply") from None
    except ValueError as error:
        # Python's message about digits advises to change a setting of the interpreter.
        raise MemAttnError(f"{where}: {str(error).partition(';')[0]}") from None


# --------------------------------------------------------------------------- writing


def reason(error: BaseException) -> str:
    """Why a write failed, as the system says it: torch raises an error of its own after that."""
    cause: BaseException | None = error
    while cause is not None and not getattr(cause, "strerror", None):
        cause = cause.__cause__ or cause.__context__
    return getattr(cause, "strerror", None) or str(error).partition("\n")[0]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The path of a temporary file, which takes the place of `path` if the body does not fail.

    It has the same suffix. Devices and pipes are written directly, and an open file of a process,
    such as /dev/stdout, gets the content after what it has already.

    Raises MemAttnError, which names the device or the file and its folder, if it cannot be written.
    """
    target, opened = Path(os.path.realpath(path)), _open_file(path)
    place, unfinished = "", path.absolute()
    way: AbstractContextManager[Path]
    if opened:
        way = _appended(opened, path.suffix)
    elif is_device(path):
        way = nullcontext(unfinished)
    else:
        place = f" in the folder {target.parent}"
        unfinished = target.with_name(f"{target.name}.{os.getpid()}.tmp{target.suffix}")
        way = _renamed(unfinished, target)
    try:
        with way as unfinished:
            yield unfinished
    except OSError as error:
        # Python names no file where a write fails.
        if error.filename not in (None, str(unfinished)):
            raise
        raise MemAttnError(
            f"{target.name if place else path} cannot be written{place}: {reason(error)}"
        ) from error


@contextmanager
def write_all_or_nothing(paths: Sequence[Path]) -> Iterator[list[TextIO]]:
    """Text files that appear at `paths` only if the body ends without an exception.

    Missing folders are created, and removed again after an exception. Raises MemAttnError as
    `replacing` does, and for half of a surrogate pair, which UTF-8 cannot encode.
    """
    folders: list[Path] = []
    try:
        with ExitStack() as stack:
            for path in paths:
                folders += make_folders(path.parent)
            parts = [stack.enter_context(replacing(path)) for path in paths]
            yield [
                stack.enter_context(open(part, "w", encoding="utf-8", newline="\n"))
                for part in parts
            ]
        folders.clear()
    except UnicodeEncodeError as error:
        raise MemAttnError(
            f"{paths[0]}: the text contains U+{ord(error.object[error.start]):04X}, half of a "
            "surrogate pair, which UTF-8 cannot encode"
        ) from None
    finally:
        for folder in reversed(folders):
            folder.rmdir()


def make_folders(folder: Path) -> list[Path]:
    """Creates a folder and its parents; returns those that were missing, outermost first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing[::-1]


def write_text(path: Path, text: str) -> None:
    """Writes a text file as a whole. Raises MemAttnError as `replacing` does.

    Names of files that are not UTF-8 keep their bytes.
    """
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", errors="surrogateescape")


def write_json(path: Path, content: Any, indent: int | None = 2) -> None:
    """Writes a JSON file as a whole. Raises MemAttnError as `replacing` does.

    NaN and infinity, which JSON cannot express, become null, and texts are `printable`.
    """
    text = json.dumps(_expressible(content), indent=indent, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def printable(text: str) -> str:
    """A text with escapes, such as \\udce4, for the bytes of a name of a file that is not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def is_device(path: Path) -> bool:
    """Whether a path is a device, a pipe or an open file, such as /dev/stdout."""
    target = Path(os.path.realpath(path))
    special = _open_file(path) is not None or target.is_relative_to("/proc")
    return path.exists() and (not path.is_file() or special)


@contextmanager
def _renamed(unfinished: Path, target: Path) -> Iterator[Path]:
    """A file in the folder of `target`, whose name it gets."""
    try:
        yield unfinished
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _appended(opened: Path, suffix: str) -> Iterator[Path]:
    """A temporary file, whose content goes to the end of an open file, after what was printed."""
    with TemporaryDirectory() as folder:
        unfinished = Path(folder, f"output{suffix}")
        yield unfinished
        sys.stdout.flush()
        # A descriptor of this process has the place at which what is printed later goes on.
        own = opened.parent == Path(os.path.realpath("/dev/fd"))
        file = os.dup(int(opened.name)) if own else opened
        with open(unfinished, "rb") as content, open(file, "ab") as stream:
            shutil.copyfileobj(content, stream)


def _open_file(path: Path) -> Path | None:
    """The path of a process's open file that `path` is or leads to, as /dev/stdout does."""
    place = Path(os.path.realpath(path.parent), path.name)
    if not path.exists():
        return None
    if place.parent.name == "fd" and place.parts[1] in ("proc", "dev"):
        return place
    return _open_file(place.parent / place.readlink()) if place.is_symlink() else None


def _expressible(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, str):
        return printable(content)
    if isinstance(content, Mapping):
        return {_expressible(key): _expressible(value) for key, value in content.items()}
    return [*map(_expressible, content)] if isinstance(content, list | tuple) else content


@contextmanager
def locked(lock: Path, held: str) -> Iterator[None]:
    """Holds the lock of a folder in the body; the system releases that of a process that has ended.

    lock: a file, which is removed after the body, and with it the folders that were made for it,
        if they are empty
    held: the error if another process has the lock

    Raises MemAttnError with that text.
    """
    folders = make_folders(lock.parent)
    with _acquire(lock, held):
        try:
            yield
        finally:
            for remove in (lock.unlink, *(folder.rmdir for folder in reversed(folders))):
                with suppress(OSError):  # not empty
                    remove()


def _acquire(path: Path, held: str) -> TextIO:
    while True:
        file = open(path, "a")  # noqa: SIM115
        try:
            # Unlike flock, lockf locks for this process alone, and not for those that it forks.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:  # removed by the process that has held the lock
            pass
        except OSError as error:
            if error.errno in UNSUPPORTED:
                return file
            file.close()
            if isinstance(error, BlockingIOError | PermissionError):
                raise MemAttnError(held) from None
            raise
        file.close()
