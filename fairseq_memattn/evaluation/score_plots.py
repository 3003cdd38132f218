"""Plots of scores by the position of a sentence in its document, and by its length."""

from collections.abc import Sequence
from pathlib import Path

from fairseq_memattn.evaluation.breakdown import Breakdown
from fairseq_memattn.evaluation.plots import DPI

PANEL_WIDTH, PANEL_HEIGHT = 4.2, 3.0  # inches


def draw_breakdowns(breakdowns: Sequence[Breakdown], output: Path) -> None:
    """Draws a row of panels for each breakdown: a panel for each measure, a line for each system.

    The grey bars show the number of sentences in each group.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    systems = breakdowns[0].rows[0]["systems"]
    measures = list(next(iter(systems.values())))
    figure = Figure(
        dpi=DPI,
        figsize=(PANEL_WIDTH * len(measures), 0.5 + PANEL_HEIGHT * len(breakdowns)),
        layout="constrained",
    )
    FigureCanvasAgg(figure)
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
