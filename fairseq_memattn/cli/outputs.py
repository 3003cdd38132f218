"""Checks the paths of output files before a command starts its work."""

from collections.abc import Iterable, Mapping
from pathlib import Path


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Raises ValueError for outputs that are folders, have no folder, or overwrite another file.

    outputs: the path of each option; inputs: the files that the command reads
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
