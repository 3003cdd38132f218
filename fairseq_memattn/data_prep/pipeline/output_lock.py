"""A lock of the output folder: only one preparation writes to it."""

import argparse
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from fairseq_memattn.data_prep.pipeline.files import DataError, make_folders, run_command

LOCK = ".lock"
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # file systems without locks


def run_locked(work: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> int:
    """`run_command` for a preparation that writes to the folder --output."""

    def locked_work(args: argparse.Namespace) -> None:
        with locked(args.output, args.output / LOCK):
            work(args)

    return run_command(locked_work, args)


@contextmanager
def locked(output: Path, lock: Path) -> Iterator[None]:
    """Hold the lock of the folder `output` in the body; the system releases that of a dead process.

    lock: the file of the lock; it is removed after the body, and with it the folders that were made
        for it, if they are empty

    Raises DataError if another process holds the lock, and if `output` cannot be a folder.
    """
    folders: list[Path] = []
    try:
        _refuse_files(output)
        folders = make_folders(lock.parent)
        file = _acquire(lock)
    except (BlockingIOError, PermissionError) as error:
        if error.filename is None:  # the lock, unlike the file, is refused
            raise DataError(f"another preparation is writing to --output {output}") from None
        raise _unwritten(output, error) from None
    except OSError as error:
        raise _unwritten(output, error) from None
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


def _refuse_files(output: Path) -> None:
    """Raise DataError if `output`, or the innermost existing folder above it, is a file."""
    found = next((path for path in (output, *output.parents) if path.exists()), None)
    if found and not found.is_dir():
        where = f"--output {output}" + (f": {found}" if found != output else "")
        raise DataError(f"{where} is a file; it must be a folder")


def _unwritten(output: Path, error: OSError) -> DataError:
    return DataError(f"--output {output}: cannot be written ({error.strerror})")
