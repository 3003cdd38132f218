"""What differs between two records of what an output was made from."""

import json
from collections.abc import Iterator, Mapping

MOST = 3  # differences in a message
WIDTH = 40  # characters of a value in a message


def differences(files: tuple[object, object], options: tuple[object, object]) -> str:
    """The first differences, in a message.

    files: the checksums by name; options: the values by name; each is a pair, of the record, which
        may be damaged, and of this run
    """
    before, now = map(_flat, files)
    found = [*_changed_options(*map(_flat, options)), *_changed_files(before, now)]
    if not found and list(before) != list(now):
        found = [f"the order of the files was {', '.join(before)} and is {', '.join(now)}"]
    found = found or ["the version of the command"]
    return ", ".join([*found[:MOST], *(["..."] if len(found) > MOST else [])])


def _flat(values: object) -> dict[str, str]:
    """The values as text; those of a mapping have its name before theirs."""
    found: dict[str, str] = {}
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if isinstance(value, Mapping):
            found |= {f"{name} {inner}": text for inner, text in _flat(value).items()}
        else:
            found[name] = value if isinstance(value, str) else json.dumps(value)
    return found


def _changed_options(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in {**before, **now}:
        was, is_now = (texts.get(name, "not given") for texts in (before, now))
        if was != is_now:
            yield f"{name} was {was:.{WIDTH}} and is {is_now:.{WIDTH}}"


def _changed_files(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in {**before, **now}:
        if name not in before:
            yield f"{name} is now read as well"
        elif name not in now:
            yield f"{name} is no longer read"
        elif before[name] != now[name]:
            yield f"{name} has changed"
