"""Which lines of a set in ContraPro's layout are a group, and what the group tests."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_memattn.evaluation.contrastive import read_entries
from fairseq_memattn.evaluation.fairseq_output import read_lines

LINE_STARTS = "sentence_groups.txt"
# The folder of the text in the repository of Lopes et al. Its JSON is in the folder above.
EXTRACTED = "extracted"


class Tested(NamedTuple):
    """What is known of a group beside its text.

    stop: the line after its last one
    """

    start: int
    stop: int
    pronoun: str | None = None
    distance: int | None = None


def tested_groups(folder: Path, targets: Sequence[str]) -> list[Tested]:
    """The groups in the order of the lines, from the set's JSON or from line numbers.

    folder: of the text; the JSON of a folder `extracted` may be in the folder above
    targets: the lines of the text

    Raises ValueError, which names file and line, for groups that do not fit the lines.
    """
    for place in (folder, folder.parent) if folder.name == EXTRACTED else (folder,):
        found = sorted(place.glob("*.json"))
        if len(found) > 1:
            raise ValueError(f"{place} must have one JSON file, but has {len(found)}")
        if found:
            return _from_json(found[0], targets)
    starts = _starts(folder / LINE_STARTS, len(targets))
    return [Tested(*span) for span in pairwise([*starts, len(targets)])]


def _from_json(path: Path, targets: Sequence[str]) -> list[Tested]:
    """The groups of a JSON list with `errors`, whose `contrastive` is a candidate.

    The lines are in the order of the list, of the documents in the list, or in any other order.
    """
    entries = read_entries(path, _problem)
    expected = sum(1 + len(entry["errors"]) for entry in entries)
    if len(targets) != expected:
        raise ValueError(f"{path} has {expected} candidates, but the text has {len(targets)} lines")
    documents: dict[Any, list[Any]] = {}
    for entry in entries:
        documents.setdefault(str(entry.get("document id")), []).append(entry)
    by_document = [entry for part in documents.values() for entry in part]
    lines = [_words(target) for target in targets]
    for ordered in (entries, by_document):
        groups = _in_order(ordered, lines)
        if groups:
            return groups
    return _in_any_order(path, entries, lines)


def _problem(entry: Any) -> str | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("ref pronoun"), str):
        return "must be an object with `ref pronoun` and `errors`"
    errors = entry.get("errors")
    if not isinstance(errors, list) or not errors:
        return "errors must be a list of objects"
    if not all(isinstance(e, dict) and isinstance(e.get("contrastive"), str) for e in errors):
        return "each of errors must have a string `contrastive`"
    return None


def _words(text: str) -> str:
    return " ".join(text.split())


def _incorrect(entry: dict[str, Any]) -> tuple[str, ...]:
    """The incorrect candidates. The JSON may have the correct one in another tokenisation."""
    return tuple(_words(error["contrastive"]) for error in entry["errors"])


def _pronoun(entry: dict[str, Any]) -> str:
    return entry["ref pronoun"].lower()


def _known_distance(entry: dict[str, Any]) -> int | None:
    """-1 stands for a distance that is not known."""
    distance = entry.get("ante distance")
    return distance if type(distance) is int and distance >= 0 else None


def _in_order(entries: Sequence[Any], lines: Sequence[str]) -> list[Tested]:
    """The groups, if the lines have the entries in order; otherwise none."""
    groups, start = [], 0
    for entry in entries:
        stop = start + 1 + len(entry["errors"])
        if tuple(lines[start + 1 : stop]) != _incorrect(entry):
            return []
        groups.append(Tested(start, stop, _pronoun(entry), _known_distance(entry)))
        start = stop
    return groups


def _in_any_order(path: Path, entries: Sequence[Any], lines: Sequence[str]) -> list[Tested]:
    """The groups, found by their incorrect candidates.

    Entries with the same incorrect candidates have only the pronoun and the distance that is the
    same in all of them.
    """
    same: dict[tuple[str, ...], list[Any]] = {}
    for entry in entries:
        same.setdefault(_incorrect(entry), []).append(entry)
    unused = Counter({incorrect: len(found) for incorrect, found in same.items()})
    sizes = sorted({len(incorrect) for incorrect in same}, reverse=True)
    groups, start = [], 0
    while start < len(lines):
        candidates = (tuple(lines[start + 1 : start + 1 + size]) for size in sizes)
        incorrect = next((texts for texts in candidates if unused[texts]), None)
        if incorrect is None:
            raise ValueError(
                f"{path}: line {start + 2} of the text must be the `contrastive` of a group, but "
                f"is {lines[start + 1]!r}"
            )
        unused[incorrect] -= 1
        stop = start + 1 + len(incorrect)
        pronouns = {_pronoun(entry) for entry in same[incorrect]}
        distances = {_known_distance(entry) for entry in same[incorrect]}
        groups.append(
            Tested(
                start,
                stop,
                pronouns.pop() if len(pronouns) == 1 else None,
                distances.pop() if len(distances) == 1 else None,
            )
        )
        start = stop
    return groups


def _starts(path: Path, lines: int) -> list[int]:
    """The first line of each group. They increase, start with 0, and are below `lines`."""
    if not path.exists():
        raise ValueError(f"{path.parent} must have the JSON of the set or {path.name}")
    starts: list[int] = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip().isdecimal() or len(line) > 18:
            raise ValueError(f"{path}, line {number}: must be a line number, but is {line[:40]!r}")
        start = int(line)
        lowest = starts[-1] + 1 if starts else 0
        if start < lowest or start > lines or (not starts and start):
            raise ValueError(
                f"{path}, line {number}: must be from {lowest} to {lines if starts else 0}, but is "
                f"{start}"
            )
        starts.append(start)
    if not starts:
        raise ValueError(f"{path} is empty")
    return starts[:-1] if starts[-1] == lines else starts
