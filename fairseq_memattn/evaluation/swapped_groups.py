"""Groups of a contrastive set with exchanged source and target, which their script reveals.

Voita's ellipsis_infl has one such group. In lines 1171-1175 of its flat form, the source is the
Russian context and answer, and the candidates are English contexts with Russian answers.
"""

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from fairseq_memattn.evaluation.contrastive import Group

KEEP, SWAP, DROP = HANDLINGS = ("keep", "swap", "drop")
# as in the published accuracies
DEFAULT = KEEP


class Handled(NamedTuple):
    """The result of `handle_exchanged`.

    groups: the groups to score
    report: the exchanged groups and how they were handled, for JSON
    sentence: the same in one sentence; empty if no group is exchanged
    """

    groups: list[Group]
    report: dict[str, str | list[str]]
    sentence: str


def handle_exchanged(groups: Sequence[Group], handling: str = DEFAULT) -> Handled:
    """Keeps, corrects or drops the groups of one set whose source and target are exchanged.

    handling: "keep" changes nothing; "swap" corrects a group, see `swapped`; "drop" leaves it out

    The report has `handling`, and in `lines` the lines of each exchanged group in the set's flat
    form, which has one candidate a line, counted from 1.

    Raises ValueError for another handling.
    """
    if handling not in HANDLINGS:
        raise ValueError(f"must be one of {', '.join(HANDLINGS)}, but is {handling}")
    found = set(exchanged(groups))
    stops = list(accumulate(len(group.candidates) for group in groups))
    lines = [
        f"{stops[index] - len(groups[index].candidates) + 1}-{stops[index]}"
        for index in sorted(found)
    ]
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


def exchanged(groups: Sequence[Group]) -> list[int]:
    """The indices of groups whose source has the targets' script, and whose target the sources'.

    The script of either side is that of most letters in all sources and in all correct candidates.
    If the scripts are equal, no group is found.
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
    """The group with its source and its correct candidate exchanged.

    In an incorrect candidate, each sentence that equals the correct candidate's is replaced by the
    source's sentence. The other sentences stay.
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
    """The script of most letters by its Unicode name, such as LATIN; None without letters."""
    scripts = Counter(script(character) for text in texts for character in text)
    del scripts[None]
    return max(scripts, key=scripts.__getitem__) if scripts else None


@functools.cache
def script(character: str) -> str | None:
    """The first word of a letter's name in Unicode, such as LATIN; None if it is no letter."""
    return unicodedata.name(character, "?").split()[0] if character.isalpha() else None
