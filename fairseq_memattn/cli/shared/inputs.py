"""Checks of the files that a command reads, and of options that would have no effect."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from fairseq_memattn.errors import flag


def require_file(option: str, path: Path, file: Path | None = None) -> None:
    """Raises ValueError, which names the option and the path, where there is no file.

    file: of the path, where that names a column of it as well
    """
    if not (file or path).is_file():
        what = "must be a file" if (file or path).exists() else "there is no such file"
        raise ValueError(f"{option} {path}: {what}")


def refuse_unused(args: argparse.Namespace, names: Iterable[str], reason: str) -> None:
    """Raises ValueError for a given option that would have no effect.

    names: the options, which are None or False by default
    reason: the end of the message, which follows the option
    """
    for name in names:
        if getattr(args, name) is not None and getattr(args, name) is not False:
            raise ValueError(f"{flag(name)} {reason}")
