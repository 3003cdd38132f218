"""Refusing, before any long work, what cannot or should not be written."""

from collections.abc import Iterable, Mapping
from pathlib import Path


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Raises ValueError for a file to write that has no folder, is one, or is written over.

    outputs: by the option that names it; inputs: what is read, which no output may replace
    """
    read = [path for path in inputs if path and path.exists()]
    taken: dict[Path, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir():
            raise ValueError(f"{option} {path} is a folder, not a file")
        folder = path.absolute().parent
        if not folder.is_dir():
            raise ValueError(f"{option} {path}: the folder {folder} does not exist")
        for other in read:
            if path.exists() and path.samefile(other):
                raise ValueError(f"{option} {path} would overwrite the input {other}")
        first = taken.setdefault(path.resolve(), option)
        if first != option:
            raise ValueError(f"{option} {path} is the file of {first} as well")
