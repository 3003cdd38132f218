"""Checks of the files that a command reads."""

from pathlib import Path


def require_file(option: str, path: Path, file: Path | None = None) -> None:
    """Raises ValueError, which names the option and the path, where there is no file.

    file: of the path, where that names a column of it as well
    """
    file = file or path
    if file.is_file():
        return
    if file.is_dir():
        raise ValueError(f"{option} {path}: must be a file, but is a folder")
    if file.exists():
        raise ValueError(f"{option} {path}: must be a file, but is a pipe, which is read only once")
    raise ValueError(f"{option} {path}: there is no such file")
