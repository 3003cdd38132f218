"""Checks of the files that a command reads."""

from pathlib import Path


def require_file(option: str, path: Path, file: Path | None = None) -> None:
    """Raises ValueError, which names the option and the path, where there is no file.

    file: of the path, where that names a column of it as well
    """
    if not (file or path).is_file():
        what = "must be a file" if (file or path).exists() else "there is no such file"
        raise ValueError(f"{option} {path}: {what}")
