"""BLEU, chrF and accuracy by the position of a sentence in its document, and by its length."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_memattn.evaluation.document_lines import Document
from fairseq_memattn.evaluation.plots import DPI
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
    hypotheses = next(each.hypotheses for each in measures if each.name != "d-BLEU")
    rows = []
    for group, chosen in sorted(groups.items()):
        systems = group_scores(measures, references, chosen)
        for system, lines in hypotheses.items():
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


PANEL_WIDTH, PANEL_HEIGHT = 4.2, 3.0  # inches


def draw_breakdowns(breakdowns: Sequence[Breakdown], output: Path) -> None:
    """Draws a row of panels for each breakdown: a panel for each measure, a line for each system.

    The grey bars show the number of sentences in each group.
    """
    from matplotlib.figure import Figure

    systems = breakdowns[0].rows[0]["systems"]
    measures = list(next(iter(systems.values())))
    figure = Figure(
        dpi=DPI,
        figsize=(PANEL_WIDTH * len(measures), 0.5 + PANEL_HEIGHT * len(breakdowns)),
        layout="constrained",
    )
    axes = figure.subplots(len(breakdowns), len(measures), squeeze=False)
    for panels, (name, rows) in zip(axes, breakdowns, strict=True):
        labels = [row["group"] for row in rows]
        for panel, measure in zip(panels, measures, strict=True):
            counts = panel.twinx()
            counts.bar(range(len(rows)), [row["sentences"] for row in rows], color="0.9")
            counts.tick_params(colors="0.6", labelsize=8)
            # The bars of the second axes would cover the lines.
            panel.set_zorder(counts.get_zorder() + 1)
            panel.patch.set_visible(False)
            for system in systems:
                scores = [row["systems"][system][measure] for row in rows]
                panel.plot(range(len(rows)), scores, marker="o", markersize=4, label=system)
            panel.set_xticks(range(len(rows)), labels, rotation=45, fontsize=8)
            panel.set_title(measure, fontsize=10)
            panel.set_xlabel(name, fontsize=9)
            panel.set_ylim(bottom=0)
        counts.set_ylabel("sentences", color="0.6", fontsize=8)
    # parse_math would read names between dollar signs as a formula.
    for text in axes[0, 0].legend(fontsize=8).get_texts():
        text.set_parse_math(False)
    figure.savefig(output)
