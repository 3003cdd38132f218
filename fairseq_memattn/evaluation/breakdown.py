"""BLEU, chrF and accuracy by the position of a sentence in its document, and by its length."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fairseq_memattn.evaluation.document_lines import Document
from fairseq_memattn.evaluation.scores import Measure, group_scores
from fairseq_memattn.evaluation.words import count_words

# The last number of each group; numbers above the last one are a group too.
POSITIONS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500)
LENGTHS = (0, 5, 10, 15, 20, 30, 40, 50, 100)


class Breakdown(NamedTuple):
    """The scores of groups of sentences.

    name: what a group has in common, for tables and pictures
    rows: of each group that has sentences, its label, their number, and the scores by system
    """

    name: str
    rows: list[dict[str, Any]]


def positions(documents: Sequence[Document]) -> list[int]:
    """The position of each sentence in its document, from 1."""
    return [1 + index for _, start, stop in documents for index in range(stop - start)]


def lengths(sentences: Sequence[Sequence[str]]) -> list[int]:
    """The number of words of each tokenised sentence."""
    return [count_words(tokens) for tokens in sentences]


def breakdown(
    name: str,
    numbers: Sequence[int],
    limits: Sequence[int],
    measures: Sequence[Measure],
    references: Sequence[Sequence[str]],
) -> Breakdown:
    """The scores of the sentences whose numbers are in the same group.

    numbers: the position or length of each sentence; limits: the last number of each group
    measures: those of `scores.build_measures`; references: of one translator or several
    """
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for index, number in enumerate(numbers):
        groups[bisect_left(limits, number)].append(index)
    accepted = [{line.strip() for line in lines} for lines in zip(*references, strict=True)]
    rows = []
    for group, chosen in sorted(groups.items()):
        systems = group_scores(measures, references, chosen)
        for system, lines in _hypotheses(measures).items():
            exact = sum(lines[index].strip() in accepted[index] for index in chosen)
            systems[system]["accuracy"] = 100 * exact / len(chosen)
        rows.append({"group": label(group, limits), "sentences": len(chosen), "systems": systems})
    return Breakdown(name, rows)


def label(group: int, limits: Sequence[int]) -> str:
    """The numbers of a group, such as 4-5."""
    if group == len(limits):
        return f">{limits[-1]}"
    first = limits[group - 1] + 1 if group else limits[0]
    return str(first) if first == limits[group] else f"{first}-{limits[group]}"


def _hypotheses(measures: Sequence[Measure]) -> Mapping[str, Sequence[str]]:
    return next(each.hypotheses for each in measures if each.name != "d-BLEU")
