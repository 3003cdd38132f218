"""Scores by position and by length for `memattn score`."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from fairseq_memattn.cli.scoring.options import SOURCE_TOKENIZE
from fairseq_memattn.evaluation.breakdown import (
    LENGTHS,
    POSITIONS,
    Breakdown,
    breakdown,
    lengths,
    positions,
)
from fairseq_memattn.evaluation.document_lines import ScoredTexts
from fairseq_memattn.evaluation.scores import Measure
from fairseq_memattn.evaluation.words import tokenise
from fairseq_memattn.files import replacing


def breakdowns(
    args: argparse.Namespace, texts: ScoredTexts, measures: Sequence[Measure]
) -> dict[str, Breakdown]:
    """The scores by position and by length, by the name of the option."""
    found = {}
    if args.positions:
        numbers = positions(texts.documents)
        found["positions"] = breakdown(
            "sentence of the document", numbers, POSITIONS, measures, texts.all_references
        )
    if args.lengths:
        lines, tokenize = texts.references, args.tokenize
        if args.lengths == "source":
            lines, tokenize = texts.sources, args.source_tokenize or SOURCE_TOKENIZE
        found["lengths"] = breakdown(
            f"words of the {args.lengths}",
            lengths(tokenise(lines, tokenize)),
            LENGTHS,
            measures,
            texts.all_references,
        )
    return found


def plot(output: Path, breakdowns: Sequence[Breakdown]) -> None:
    """Draws the breakdowns."""
    # matplotlib logs every font that it looks at.
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    from fairseq_memattn.evaluation.breakdown import draw_breakdowns
    from fairseq_memattn.evaluation.fonts import fonts_for

    with fonts_for(breakdowns[0].rows[0]["systems"]), replacing(output) as unfinished:
        draw_breakdowns(breakdowns, unfinished)
    print(f"drew {output}")
