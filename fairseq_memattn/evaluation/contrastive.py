"""Contrastive sets: the lines that a model scores, and the accuracies of its scores.

A group has one correct translation of a sentence in context and one or more incorrect ones. A model
is right in a group if the correct translation has a strictly higher score than every other one.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_memattn.evaluation.tables import table
from fairseq_memattn.files import read_json

RIGHT, WRONG, TIE, REPEATED = "right", "wrong", "tie", "repeated"


@dataclass(frozen=True)
class Group:
    """One source and its candidate translations, one of which is correct.

    source: the sentences of the source, oldest first; the last one is to be translated
    candidates: the sentences of each candidate, as many as the source has
    true_index: the index of the correct candidate, from 0
    phenomenon: the phenomenon that the set tests
    distance: the number of sentences from the cue to the last sentence; None if it is not known
    pronoun: the pronoun that the group tests, or its gender and number; None if the set does not
        test pronouns
    kind: the type of the group, in a set that names types; otherwise None
    max_distance: distances beyond it are counted together; None counts each
    block: the name of the block of the phenomenon that the group belongs to, in a set with blocks;
        otherwise None

    Raises ValueError for fewer than 2 candidates, an index out of range, a candidate with another
    number of sentences, and an empty sentence.
    """

    source: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]
    true_index: int
    phenomenon: str
    distance: int | None = None
    pronoun: str | None = None
    kind: str | None = None
    block: str | None = None
    max_distance: int | None = None

    def __post_init__(self) -> None:
        if len(self.candidates) < 2:
            raise ValueError(
                f"there must be at least 2 candidates, but there are {len(self.candidates)}"
            )
        if not 0 <= self.true_index < len(self.candidates):
            raise ValueError(
                f"the index of the correct candidate must be from 0 to {len(self.candidates) - 1}, "
                f"but is {self.true_index}"
            )
        for candidate in self.candidates:
            if len(candidate) != len(self.source):
                raise ValueError(
                    f"the source has {len(self.source)} sentences, but a candidate has "
                    f"{len(candidate)}"
                )
        if not all(
            sentence.strip() for text in (self.source, *self.candidates) for sentence in text
        ):
            raise ValueError("a sentence is empty")

    @property
    def true(self) -> tuple[str, ...]:
        return self.candidates[self.true_index]


# Groups with their verdicts.
Pairs = list[tuple[Group, str]]


class ScoringLine(NamedTuple):
    """One candidate with its source; both indices count from 0."""

    group: int
    candidate: int
    source: tuple[str, ...]
    target: tuple[str, ...]


def scoring_lines(groups: Sequence[Group]) -> list[ScoringLine]:
    """All candidates of all groups, in order.

    They can be scored in any order and in any batches, but `judge` needs the scores in the order of
    the lines. Initialise the array of scores with NaN: `judge` raises an error if one remains.
    """
    return [
        ScoringLine(number, index, group.source, candidate)
        for number, group in enumerate(groups)
        for index, candidate in enumerate(group.candidates)
    ]


def judge(groups: Sequence[Group], scores: Sequence[float]) -> list[str]:
    """Returns "right", "wrong", "tie" or "repeated" for each group.

    scores: the log-likelihood of each of `scoring_lines`, summed over the target. Scores are
        compared without rounding.

    "tie": the best incorrect candidate has the same score as the correct one.
    "repeated": the correct candidate's text is also an incorrect candidate. Their scores can only
        differ by rounding, if they are scored in different batches.

    Raises ValueError for another number of scores than lines, for NaN, and for scores above 0 of
    which none is below 0, because such scores are losses.
    """
    lines = sum(len(group.candidates) for group in groups)
    values = [float(score) for score in scores]
    if len(values) != lines:
        raise ValueError(f"there are {len(values)} scores for {lines} lines")
    for number, value in enumerate(values, start=1):
        if math.isnan(value):
            raise ValueError(f"the score of line {number} of {lines} is NaN")
    if values and min(values) >= 0 and max(values) > 0:
        raise ValueError(
            f"scores must be log-likelihoods, which are at most 0, but none is below 0, and the "
            f"largest is {max(values)}: are they losses?"
        )
    verdicts = []
    start = 0
    for group in groups:
        stop = start + len(group.candidates)
        verdicts.append(_verdict(group, values[start:stop]))
        start = stop
    return verdicts


def _verdict(group: Group, scores: list[float]) -> str:
    if group.candidates.count(group.true) > 1:
        return REPEATED
    true = scores[group.true_index]
    best_other = max(score for index, score in enumerate(scores) if index != group.true_index)
    if true == best_other:
        return TIE
    return RIGHT if true > best_other else WRONG


def summarise(groups: Sequence[Group], verdicts: Sequence[str]) -> dict[str, Any]:
    """Counts and accuracies of all groups and of each phenomenon, as a dictionary for JSON.

    It is {"total": S, "phenomena": {name: S}}. S has the counts `groups`, `lines`, `right`, `ties`
    and `repeated`, the `accuracy`, and `chance`, the expected accuracy of guessing, both from 0 to
    1. If any group has a distance, a pronoun or a type, S also has `distances`, `pronouns` or
    `types`, with these counts for each value; those of a pronoun have `types` too. Distances beyond
    `max_distance` are counted together. If any group has a block, S has `blocks`, see `_blocks`.
    """
    pairs = list(zip(groups, verdicts, strict=True))
    names = dict.fromkeys(group.phenomenon for group in groups)
    return {
        "total": _summary(pairs),
        "phenomena": {
            name: _summary([pair for pair in pairs if pair[0].phenomenon == name]) for name in names
        },
    }


def _summary(pairs: Pairs) -> dict[str, Any]:
    summary = _counts(pairs)
    for name, key in PARTS.items():
        values = _split(pairs, key)
        if values:
            summary[name] = {value: _counts(part) for value, part in values.items()}
    for pronoun, part in _split(pairs, PARTS["pronouns"]).items():
        types = _split(part, PARTS["types"])
        if types:
            summary["pronouns"][pronoun]["types"] = {
                kind: _counts(counted) for kind, counted in types.items()
            }
    blocks = _blocks(pairs)
    if blocks:
        summary["blocks"] = blocks
    return summary


def _distance(group: Group) -> str | None:
    """The distance of a group as results name it; None if it is not known."""
    if group.distance is None:
        return None
    most = group.max_distance
    return str(group.distance) if most is None or group.distance <= most else f">{most}"


# What a summary is divided by: the value of a group, or None.
PARTS: dict[str, Callable[[Group], str | None]] = {
    "distances": _distance,
    "pronouns": lambda group: group.pronoun,
    "types": lambda group: group.kind,
}


def _split(pairs: Pairs, key: Callable[[Group], str | None]) -> dict[str, Pairs]:
    """The groups of each value of the key, in ascending order, without groups whose key is None."""
    found = {value for group, _ in pairs if (value := key(group)) is not None}
    # Numbers by their size, before all other values.
    values = sorted(found, key=lambda x: (False, int(x), "") if x.isdecimal() else (True, 0, x))
    return {value: [pair for pair in pairs if key(pair[0]) == value] for value in values}


def _blocks(pairs: Pairs) -> dict[str, Any]:
    """Counts of blocks; empty without blocks.

    `right` is the number of `blocks` whose groups are all right, `all_right` names them, and
    `chance` is the expected accuracy of guessing each group.
    """
    blocks: dict[tuple[str, str], Pairs] = {}
    for group, verdict in pairs:
        if group.block is not None:
            blocks.setdefault((group.phenomenon, group.block), []).append((group, verdict))
    if not blocks:
        return {}
    right = [
        " ".join(name)
        for name, part in blocks.items()
        if all(verdict == RIGHT for _, verdict in part)
    ]
    guessed = [
        math.prod(1 / len(group.candidates) for group, _ in part) for part in blocks.values()
    ]
    return {
        "blocks": len(blocks),
        "right": len(right),
        "accuracy": len(right) / len(blocks),
        "chance": sum(guessed) / len(blocks),
        "all_right": right,
    }


def _counts(pairs: Pairs) -> dict[str, Any]:
    verdicts = Counter(verdict for _, verdict in pairs)
    sizes = [len(group.candidates) for group, _ in pairs]
    return {
        "groups": len(pairs),
        "lines": sum(sizes),
        "right": verdicts[RIGHT],
        "ties": verdicts[TIE],
        "repeated": verdicts[REPEATED],
        "accuracy": verdicts[RIGHT] / len(pairs),
        "chance": sum(1 / size for size in sizes) / len(pairs),
    }


def results(groups: Sequence[Group], scores: Sequence[float]) -> dict[str, Any]:
    """`summarise` of the verdicts of `judge`. Raises ValueError as `judge`, and for no groups."""
    if not groups:
        raise ValueError("there are no groups to judge")
    return summarise(groups, judge(groups, scores))


def results_text(summary: dict[str, Any]) -> str:
    """The return value of `results` as a table, with accuracies in percent."""
    rows = [["", "groups", "lines", "right", "ties", "repeated", "accuracy", "chance"]]
    for name, part in summary["phenomena"].items():
        rows.append(_row(name, part))
        for distance, counts in part.get("distances", {}).items():
            rows.append(_row(f"  distance {distance}", counts))
        for pronoun, counts in part.get("pronouns", {}).items():
            rows.append(_row(f"  {pronoun}", counts))
            for kind, typed in counts.get("types", {}).items():
                rows.append(_row(f"    {kind}", typed))
        for kind, counts in part.get("types", {}).items():
            rows.append(_row(f"  {kind}", counts))
        if "blocks" in part:
            blocks = part["blocks"] | {"groups": part["blocks"]["blocks"]}
            rows.append(_row("  blocks with all right", blocks))
    if len(summary["phenomena"]) > 1:
        rows.append(_row("total", summary["total"]))
    return table(rows)


def _row(name: str, counts: dict[str, Any]) -> list[str]:
    numbers = [str(counts.get(key, "")) for key in ("groups", "lines", "right", "ties", "repeated")]
    return [name, *numbers, *(f"{100 * counts[key]:.1f} %" for key in ("accuracy", "chance"))]


def read_entries(path: Path, problem: Callable[[Any], str | None]) -> list[dict[str, Any]]:
    """The groups in the JSON of a set.

    problem: says what is wrong with a group, if anything is

    Raises ValueError, which names the file and the group, counted from 1.
    """
    entries = read_json(path)
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path} must hold a list of groups")
    for number, entry in enumerate(entries, start=1):
        wrong = problem(entry)
        if wrong:
            raise ValueError(f"{path}, group {number}: {wrong}")
    return entries


def check_same(path: Path, lines: Sequence[object], start: int, stop: int) -> None:
    """Raises ValueError unless lines `start` to `stop` of a file, one group, are equal."""
    for index in range(start + 1, stop):
        if lines[index] != lines[start]:
            raise ValueError(
                f"{path}, line {index + 1}: differs from line {start + 1}, the first of its group"
            )
