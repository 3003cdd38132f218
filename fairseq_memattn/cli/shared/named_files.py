"""Options of the form NAME=FILE, or FILE alone."""

from pathlib import Path

from fairseq_memattn.evaluation.text_columns import file_of


def named_file(option: str, given: str) -> tuple[str | None, Path]:
    """The name, None where there is none, and the file.

    A file that exists, and a path with = after one of its folders, has no name before the =.

    Raises ValueError, which names the option, if either is empty.
    """
    name, equals, path = given.partition("=")
    if file_of(Path(given)).is_file() or ("/" in name and not file_of(Path(path)).is_file()):
        return None, Path(given)
    if not name or (equals and not path):
        raise ValueError(f"{option} must be NAME=FILE or FILE, but is {given!r}")
    return (name, Path(path)) if equals else (None, Path(name))
