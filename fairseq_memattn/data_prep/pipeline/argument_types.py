"""Types of arguments for argparse; each raises ArgumentTypeError, which argparse prints."""

from argparse import ArgumentTypeError
from pathlib import Path


def positive(value: str) -> int:
    """An integer of at least 1."""
    if not value.isdecimal() or int(value) < 1:
        raise ArgumentTypeError(f"must be an integer of at least 1, but is {value!r}")
    return int(value)


def separator_token(value: str) -> str:
    """One token."""
    if value.split() != [value]:
        raise ArgumentTypeError(f"must be one token without spaces, but is {value!r}")
    return value


def split_and_prefix(value: str) -> tuple[str, Path]:
    """SPLIT=PREFIX, a split and the prefix of its files."""
    return _split_and_path(value, "PREFIX")


def split_and_file(value: str) -> tuple[str, Path]:
    """SPLIT=FILE, a split and its file."""
    return _split_and_path(value, "FILE")


def name_and_column(value: str) -> tuple[str, str]:
    """NAME=COLUMN, a language or docid, and its column."""
    name, equals, column = value.partition("=")
    if not (name and equals and column):
        raise ArgumentTypeError(f"must be NAME=COLUMN, but is {value!r}")
    return name, column


def _split_and_path(value: str, kind: str) -> tuple[str, Path]:
    split, equals, path = value.partition("=")
    if not (split and equals and path):
        raise ArgumentTypeError(f"must be SPLIT={kind}, but is {value!r}")
    return split, Path(path)
