"""Groups of a contrastive set whose source and target got exchanged, told by their script.

One group of Voita's ellipsis_infl is such: lines 1171-1175 of its flat form have the Russian
context and answer as source, and English contexts with Russian answers as candidates.
"""

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from fairseq_memattn.evaluation.contrastive import Group

KEEP, SWAP, DROP = HANDLINGS = ("keep", "swap", "drop")
# The published accuracies have these lines scored as they are.
DEFAULT = KEEP


class Handled(NamedTuple):
    """The groups to score, and what was found and done, as JSON and as one sentence or none."""

    groups: list[Group]
    report: dict[str, str | list[str]]
    sentence: str


def handle_exchanged(groups: Sequence[Group], handling: str = DEFAULT) -> Handled:
    """Keep, repair or drop the groups of one set whose source and target are exchanged.

    handling: "keep" changes nothing; "swap" repairs a group, see `swapped`; "drop" leaves it out
    The report has `handling` and, as `lines`, the span of each such group in the set's flat form,
    one candidate a line from 1.
    Raises ValueError for another handling.
    """
    if handling not in HANDLINGS:
        raise ValueError(f"must be one of {', '.join(HANDLINGS)}, but is {handling}")
    found = set(exchanged(groups))
    lines = _lines(groups, found)
    report: dict[str, str | list[str]] = {"handling": handling, "lines": lines}
    if not found:
        return Handled(list(groups), report, "")
    done = {KEEP: "scored as they are", SWAP: "swapped back", DROP: "left out"}[handling]
    sentence = (
        f"{groups[0].phenomenon}: source and target are exchanged in {len(found)} of "
        f"{len(groups)} groups (lines {', '.join(lines)}): {done}"
    )
    kept = [
        swapped(group) if handling == SWAP and index in found else group
        for index, group in enumerate(groups)
        if handling != DROP or index not in found
    ]
    return Handled(kept, report, sentence)


def _lines(groups: Sequence[Group], found: set[int]) -> list[str]:
    spans = []
    first = 1
    for index, group in enumerate(groups):
        last = first + len(group.candidates) - 1
        if index in found:
            spans.append(f"{first}-{last}")
        first = last + 1
    return spans


def exchanged(groups: Sequence[Group]) -> list[int]:
    """The groups, from 0, whose source has the script of the targets, and the other way round.

    Sources and right candidates of the whole set tell which script either side has. Between
    languages of one script nothing can be found.
    """
    source = main_script(text for group in groups for text in group.source)
    target = main_script(text for group in groups for text in group.true)
    if source == target:
        return []
    return [
        index
        for index, group in enumerate(groups)
        if main_script(group.source) == target and main_script(group.true) == source
    ]


def swapped(group: Group) -> Group:
    """The group with the right candidate as its source, and its source as the right candidate.

    A wrong candidate gets, from the source, each sentence in which it agrees with the right one,
    and keeps those in which it differs.
    """
    candidates = [
        tuple(
            source if sentence == true else sentence
            for source, true, sentence in zip(group.source, group.true, candidate, strict=True)
        )
        for candidate in group.candidates
    ]
    return replace(group, source=group.true, candidates=tuple(candidates))


def main_script(texts: Iterable[str]) -> str | None:
    """The script of most letters, as Unicode names it: LATIN, CYRILLIC, ...; None without any."""
    scripts = Counter(_script(character) for text in texts for character in text)
    del scripts[None]
    return max(scripts, key=scripts.__getitem__) if scripts else None


@functools.cache
def _script(character: str) -> str | None:
    return unicodedata.name(character, "?").split()[0] if character.isalpha() else None
