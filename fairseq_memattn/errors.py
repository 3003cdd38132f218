"""The plugin's own errors."""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import field, fields
from difflib import get_close_matches
from enum import Enum
from textwrap import shorten
from traceback import extract_tb
from typing import Any

TRACEBACK = "MEMATTN_TRACEBACK"  # the environment variable by which errors show their traceback
LARGEST = 2**31 - 1  # of a number that the plugin's flags take
MOST_VECTORS = 2**20  # of slots, buckets and the like, each of which has memory of its own
MOST_LAYERS = 10_000
LONGEST = 300  # characters of a message, of which some list all models or tasks


class MemAttnError(ValueError):
    """Something the user can put right, told in one sentence."""


def flag(name: str) -> str:
    """An option, by its name in the program, as it is given on a command line."""
    return "--" + name.replace("_", "-")


def like(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the names that are most similar, if any are."""
    close = get_close_matches(name, list(names), cutoff=0.7)
    verb = "are" if len(close) > 1 else "is"
    return f"; the most similar {verb} {', '.join(close)}" if close else ""


def check_least(options: Any, name: str, least: float, most: float = math.inf) -> None:
    """Raises MemAttnError where the option of that name is no number from `least` to `most`."""
    value = getattr(options, name)
    if not isinstance(value, int | float):
        raise MemAttnError(f"{flag(name)} must be a number, but is {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise MemAttnError(f"{flag(name)} must be a finite number, but is {value}")
    if value < least:
        raise MemAttnError(f"{flag(name)} must be at least {least}, but is {value}")
    if value > most:
        raise MemAttnError(f"{flag(name)} must be at most {most}, but is {value}")


def check_rate(options: Any, name: str) -> None:
    """Raises MemAttnError where the option of that name is no rate of dropout."""
    value = getattr(options, name)
    if not 0 <= value < 1:  # NaN compares as False
        raise MemAttnError(f"{flag(name)} must be at least 0 and below 1, but is {value}")


def check_choice(options: Any, name: str, choices: list[str]) -> None:
    """Raises MemAttnError where the option of that name is none of `choices`."""
    value = str(getattr(options, name))
    if value not in choices:
        raise MemAttnError(f"{flag(name)} must be one of {', '.join(choices)}, but is {value}")


def option(default: Any, help: str, **limits: Any) -> Any:
    """A field of a dataclass of flags. limits: `least`, `most` and `rate`, as in `check_fields`"""
    return field(default=default, metadata={"help": help, **limits})


def size_option(default: int | None, help: str, least: int = 1, most: int = MOST_VECTORS) -> Any:
    """`option` of a number of things, each of which has memory of its own."""
    return option(default, help, least=least, most=most)


def check_fields(options: Any, config: Any) -> None:
    """Raises MemAttnError for the first option outside of the limits that its field states.

    config: a dataclass whose fields have in their metadata `least`, and `most` if that is less than
        LARGEST, or a true `rate`; the limits of a field whose type is an enumeration are its
        values. An option of None is not set
    """
    for entry in fields(config):
        value = getattr(options, entry.name, None)
        if value is None:
            continue
        if isinstance(entry.type, type) and issubclass(entry.type, Enum):
            check_choice(options, entry.name, [choice.value for choice in entry.type])
        if "least" in entry.metadata:
            limits = entry.metadata["least"], entry.metadata.get("most", LARGEST)
            check_least(options, entry.name, *limits)
        if entry.metadata.get("rate"):
            check_rate(options, entry.name)


def read_json_object(option: str, text: str) -> dict[str, Any]:
    """The options that another option holds. Raises MemAttnError for other text."""
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise MemAttnError(f'{option} must be JSON such as {{"beam": 5}}, but is {text!r}')
    return options


def unforeseen(error: BaseException) -> str:
    """The sentence for an error that has no words of its own: its type and its message.

    An assertion without a message is its line of the source.
    """
    told = shorten(last_line(error), LONGEST, placeholder=" ...") or _source_of(error)
    return f"{type(error).__name__}: {told}; set {TRACEBACK}=1 to see the traceback"


def last_line(error: BaseException) -> str:
    """The message, without the traceback that a worker of torch's DataLoader adds to the text."""
    text = str(error)
    if text.startswith("Caught "):
        return re.sub(r"^[\w.]+: ", "", text.strip().splitlines()[-1])
    return text


def _source_of(error: BaseException) -> str:
    frames = extract_tb(error.__traceback__)
    return frames[-1].line or "" if frames else ""
