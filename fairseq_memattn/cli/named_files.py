"""Options of the form NAME=FILE, or FILE alone."""

from pathlib import Path


def named_file(option: str, given: str) -> tuple[str | None, Path]:
    """The name, None where there is none, and the file.

    A file that exists, and a path with = in one of its folders, has no name before the =.

    Raises ValueError, which names the option, if either is empty.
    """
    name, equals, path = given.partition("=")
    if "/" in name or Path(given).is_file():
        return None, Path(given)
    if not name or (equals and not path):
        raise ValueError(f"{option} must be NAME=FILE or FILE, but is {given!r}")
    return (name, Path(path)) if equals else (None, Path(name))
