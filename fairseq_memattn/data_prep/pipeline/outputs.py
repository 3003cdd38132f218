"""The output of a preparation: one process writes to it, and it overwrites nothing by accident."""

import argparse
import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TextIO

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import make_folders

LOCK = ".lock"
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # file systems without locks
Command = Callable[[argparse.Namespace], None]


def refuse_overwriting(inputs: Sequence[Path], outputs: Sequence[Path], force: bool = True) -> None:
    """Raise MemAttnError if an output is also an input or, without `force`, if it exists."""
    resolved = {os.path.realpath(path) for path in inputs}
    for path in outputs:
        if os.path.realpath(path) in resolved:
            raise MemAttnError(f"{path}: the output would overwrite an input; change --output")
        if path.exists() and not force:
            raise MemAttnError(
                f"{path} exists; choose another --output, or replace it with --force"
            )


def locks_output(work: Command) -> Command:
    """A preparation that holds the lock of the folder --output."""

    @wraps(work)
    def run(args: argparse.Namespace) -> None:
        with locked(args.output, args.output / LOCK):
            work(args)

    return run


@contextmanager
def locked(output: Path, lock: Path) -> Iterator[None]:
    """Hold the lock of the folder `output` in the body; the system releases that of a dead process.

    lock: the file of the lock; it is removed after the body, and with it the folders that were made
        for it, if they are empty

    Raises MemAttnError if another process holds the lock.
    """
    folders = make_folders(lock.parent)
    try:
        file = _acquire(lock)
    except (BlockingIOError, PermissionError) as error:
        if error.filename is None:  # the lock, unlike the file, is refused
            raise MemAttnError(f"another preparation is writing to --output {output}") from None
        raise
    with file:
        try:
            yield
        finally:
            for remove in (lock.unlink, *(folder.rmdir for folder in reversed(folders))):
                with suppress(OSError):  # not empty
                    remove()


def _acquire(lock: Path) -> TextIO:
    """The locked file. Raises OSError without a file name if another process has locked it."""
    while True:
        file = open(lock, "a")  # noqa: SIM115
        try:
            # Unlike flock, lockf locks for this process alone, and not for those that it forks.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                return file
        except FileNotFoundError:  # removed by the process that has held the lock
            pass
        except OSError as error:
            if error.errno in UNSUPPORTED:
                return file
            file.close()
            raise
        file.close()
