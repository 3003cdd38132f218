"""A new folder, which appears when all of its files are written."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import reason

OPTION = "--output"


def check_new(output: Path, option: str = OPTION) -> None:
    """Raises MemAttnError for a path that exists, or in whose folder none can be made."""
    if output.exists() or output.is_symlink():
        raise MemAttnError(f"{option} {output} exists; it must be a new folder")
    parent = output.absolute().parent
    if not parent.is_dir():
        raise MemAttnError(f"{option} {output}: the folder {parent} does not exist")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise MemAttnError(f"{option} {output}: no folders can be made in {parent}")


@contextmanager
def new_folder(output: Path, option: str = OPTION) -> Iterator[Path]:
    """A folder beside `output`, which gets its name if the body does not fail.

    Raises MemAttnError, which names `output`, if it cannot be written.
    """
    output = output.absolute()
    unfinished = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    made = False
    try:
        unfinished.mkdir()
        made = True
        yield unfinished
        check_new(output, option)
        unfinished.rename(output)
    except (OSError, SafetensorError) as error:
        named = getattr(error, "filename", None)  # Python names no file where a write fails
        if named is not None and not Path(named).is_relative_to(unfinished):
            raise
        raise MemAttnError(f"{option} {output} cannot be written: {reason(error)}") from error
    finally:
        if made:
            shutil.rmtree(unfinished, ignore_errors=True)
