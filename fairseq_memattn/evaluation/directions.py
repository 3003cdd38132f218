"""From which language to which a set is, and whether a model translates in that direction."""

import re
from pathlib import Path

Direction = tuple[str | None, str | None]  # source and target; None where it is not known
# Codes of three letters for languages that have one of two.
SHORT = {
    **{"eng": "en", "deu": "de", "ger": "de", "fra": "fr", "fre": "fr", "rus": "ru"},
    **{"spa": "es", "ita": "it", "por": "pt", "nld": "nl", "pol": "pl", "zho": "zh"},
}
PAIR = re.compile(r"(?<![a-z])([a-z]{2})-([a-z]{2})(?![a-z])")


def code(name: str | None) -> str | None:
    """The code of two letters of a language, such as that of de_DE; None for any other name."""
    first = re.split("[-_.@]", (name or "").lower())[0]
    first = SHORT.get(first, first)
    return first if re.fullmatch("[a-z]{2}", first) else None


def pair_in_name(path: Path) -> Direction:
    """The direction that the name of a file has, such as auxiliary.opensubtitles.en-de.json."""
    found = set(PAIR.findall(path.name))
    return found.pop() if len(found) == 1 else (None, None)


def check_direction(path: Path, direction: Direction, model: Direction) -> None:
    """Raises ValueError for a set of another direction than the model's.

    model: its languages, by any names; what is not known on either side is not compared
    """
    pairs = zip(map(code, direction), map(code, model), strict=True)
    if any(one and other and one != other for one, other in pairs):
        of_set, of_model = ("-".join(name or "?" for name in names) for names in (direction, model))
        raise ValueError(f"--sets {path} is {of_set}, but the model translates {of_model}")


def with_target(path: Path, direction: Direction, language: str | None) -> Direction:
    """The direction with the target of --lang. Raises ValueError for another one than the set's."""
    source, target = direction
    if language and target and code(language) != code(target):
        raise ValueError(f"--sets {path} is {source or '?'}-{target}, but --lang is {language}")
    return source, target or language
