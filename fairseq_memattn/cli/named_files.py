"""Options of the form NAME=FILE, or FILE alone."""

from pathlib import Path


def named_file(option: str, given: str) -> tuple[str | None, Path]:
    """The name, None where there is none, and the file.

    Raises ValueError, which names the option, if either is empty.
    """
    name, equals, path = given.partition("=")
    if not name or (equals and not path):
        raise ValueError(f"{option} must be NAME=FILE or FILE, but is {given!r}")
    return (name, Path(path)) if equals else (None, Path(name))
