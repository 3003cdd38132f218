"""Contrastive sets: from groups to lines to score, and from scores back to accuracies.

In each group a model scores the right translation of a sentence in context and wrong ones. It is
right where it gives the right one a strictly better score than every other; a tie is never right.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_memattn.evaluation.tables import table

RIGHT, WRONG, TIE, REPEATED = "right", "wrong", "tie", "repeated"


@dataclass(frozen=True)
class Group:
    """One source with its candidate translations, of which one is right.

    source: its sentences, oldest first, the last being the one to translate
    candidates: for each its sentences, as many as the source has
    true_index: the right candidate, from 0
    phenomenon: what the set is about
    distance: how many sentences back the cue is, where that is known
    pronoun: which pronoun the right candidate has, where the set is about pronouns
    Raises ValueError where these do not fit together.
    """

    source: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]
    true_index: int
    phenomenon: str
    distance: int | None = None
    pronoun: str | None = None

    def __post_init__(self) -> None:
        if len(self.candidates) < 2:
            raise ValueError(
                f"there must be at least 2 candidates, but there are {len(self.candidates)}"
            )
        if not 0 <= self.true_index < len(self.candidates):
            raise ValueError(
                f"the right one must be from 0 to {len(self.candidates) - 1}, but is "
                f"{self.true_index}"
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
        """The right candidate."""
        return self.candidates[self.true_index]


class ScoringLine(NamedTuple):
    """One candidate with its source; both indices count from 0."""

    group: int
    candidate: int
    source: tuple[str, ...]
    target: tuple[str, ...]


def scoring_lines(groups: Sequence[Group]) -> list[ScoringLine]:
    """Every candidate of every group, in their order.

    They may be scored in any order, in batches of any kind, as long as `judge` gets the score of
    line i as its score i: fill an array with NaN, which `judge` refuses, and write into it.
    """
    return [
        ScoringLine(number, index, group.source, candidate)
        for number, group in enumerate(groups)
        for index, candidate in enumerate(group.candidates)
    ]


def judge(groups: Sequence[Group], scores: Sequence[float]) -> list[str]:
    """For each group "right", "wrong", "tie" or "repeated".

    scores: the log-likelihood of each of `scoring_lines`, summed over the target, higher being
        better; any sequence of numbers. They are compared as they are, never rounded.
    "tie": the best wrong candidate has the same score as the right one.
    "repeated": the same text is a wrong candidate too. No score can tell them apart, and what
        differs when they are scored in different batches is rounding.
    Raises ValueError for another number of scores, for NaN, and where all of them are above 0,
    as losses are.
    """
    lines = sum(len(group.candidates) for group in groups)
    values = [float(score) for score in scores]
    if len(values) != lines:
        raise ValueError(f"there are {len(values)} scores for {lines} lines")
    for number, value in enumerate(values, start=1):
        if math.isnan(value):
            raise ValueError(f"the score of line {number} of {lines} is NaN")
    if values and min(values) > 0:
        raise ValueError(
            f"all scores are above 0, the least being {min(values)}: these are losses, but "
            "log-likelihoods are needed"
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
    """Counts and accuracy of all groups and of each phenomenon, ready for JSON.

    {"total": S, "phenomena": {name: S}}, where S has `groups`, `lines`, `right`, `ties`,
    `repeated`, `accuracy` and `chance`, the accuracy of guessing (0 to 1 both), and, where any
    group has one, `distances` and `pronouns`: for each an S without these two.
    """
    pairs = list(zip(groups, verdicts, strict=True))
    names = dict.fromkeys(group.phenomenon for group in groups)
    return {
        "total": _summary(pairs),
        "phenomena": {
            name: _summary([pair for pair in pairs if pair[0].phenomenon == name]) for name in names
        },
    }


def _summary(pairs: list[tuple[Group, str]]) -> dict[str, Any]:
    summary = _counts(pairs)
    distances = _split(pairs, lambda group: group.distance)
    pronouns = _split(pairs, lambda group: group.pronoun)
    if distances:
        summary["distances"] = distances
    if pronouns:
        summary["pronouns"] = pronouns
    return summary


def _split(
    pairs: list[tuple[Group, str]], key: Callable[[Group], int | str | None]
) -> dict[str, Any]:
    """Counts by the key, in its order, without the groups that have none."""
    keys = sorted({key(group) for group, _ in pairs} - {None})  # type: ignore[type-var]
    return {str(one): _counts([pair for pair in pairs if key(pair[0]) == one]) for one in keys}


def _counts(pairs: list[tuple[Group, str]]) -> dict[str, Any]:
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
    """`summarise` of what `judge` says, whose arguments and errors these are."""
    if not groups:
        raise ValueError("there are no groups to judge")
    return summarise(groups, judge(groups, scores))


def results_text(summary: dict[str, Any]) -> str:
    """What `results` returns as a table; accuracies in percent."""
    rows = [["", "groups", "lines", "right", "ties", "repeated", "accuracy", "chance"]]
    for name, part in summary["phenomena"].items():
        rows.append(_row(name, part))
        for distance, counts in part.get("distances", {}).items():
            rows.append(_row(f"  distance {distance}", counts))
        for pronoun, counts in part.get("pronouns", {}).items():
            rows.append(_row(f"  {pronoun}", counts))
    if len(summary["phenomena"]) > 1:
        rows.append(_row("total", summary["total"]))
    return table(rows)


def _row(name: str, counts: dict[str, Any]) -> list[str]:
    numbers = [str(counts[key]) for key in ("groups", "lines", "right", "ties", "repeated")]
    return [name, *numbers, *(f"{100 * counts[key]:.1f} %" for key in ("accuracy", "chance"))]


def check_same(path: Path, lines: Sequence[object], start: int, stop: int) -> None:
    """Raises ValueError if lines `start` to `stop` of a file, a group, are not all the same."""
    for index in range(start + 1, stop):
        if lines[index] != lines[start]:
            raise ValueError(
                f"{path}, line {index + 1}: differs from line {start + 1}, the first of its group"
            )
