"""Refusing, before any long work, what cannot or should not be written."""

from collections.abc import Sequence
from pathlib import Path


def check_output(option: str, path: Path | None, inputs: Sequence[Path] = ()) -> None:
    """Raises ValueError where the file to write has no folder, is one, or is one of `inputs`."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder, not a file")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ValueError(f"{option} {path}: the folder {folder} does not exist")
    for other in inputs:
        if path.exists() and other.exists() and path.samefile(other):
            raise ValueError(f"{option} {path} would overwrite the input {other}")
