"""Further measures for `memattn score`, one number a system: COMET, document COMET and SLIDE."""

import argparse
from collections.abc import Mapping

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import Result

from fairseq_memattn.evaluation.comet_score import (
    Comet,
    Texts,
    comet_score,
    load_comet,
    load_context_comet,
    texts_with_context,
    warn_of_cut_texts,
)
from fairseq_memattn.evaluation.document_lines import Document, ScoredTexts, join
from fairseq_memattn.evaluation.scores import (
    Measured,
    Slide,
    build_bleu,
    mean_segment_score,
    slide_windows,
)


def segment_measures(args: argparse.Namespace, texts: ScoredTexts) -> dict[str, Measured]:
    """COMET, document COMET and SLIDE, by name, as far as the options ask for them."""
    measured = {}
    if args.comet_context:
        # First, because it is refused for models that cannot use context.
        measured["doc-COMET"] = _document_comet(args, texts)
    if args.comet:
        measured = _comet(args, texts) | measured
    return measured | (_slide(args, texts) if args.slide_window else {})


def _document_comet(args: argparse.Namespace, texts: ScoredTexts) -> Measured:
    comet = load_context_comet(args.comet)
    inputs = {
        name: texts_with_context(comet, columns, texts.documents, args.comet_context)
        for name, columns in _columns(texts).items()
    }
    return _comet_measured(comet, inputs, "doc-COMET", f"context:{args.comet_context}|")


def _comet(args: argparse.Namespace, texts: ScoredTexts) -> dict[str, Measured]:
    """COMET, and SLIDE with COMET if windows are asked for."""
    comet = load_comet(args.comet)
    measured = {"COMET": _comet_measured(comet, _columns(texts))}
    if args.slide_window:
        slide, windows = _windows(args, texts)
        joined = {
            name: Texts(*(join(lines, windows) for lines in columns))
            for name, columns in _columns(texts).items()
        }
        prefix = f"{slide.signature}|"
        measured["SLIDE-COMET"] = _comet_measured(comet, joined, "SLIDE-COMET", prefix)
    return measured


def _comet_measured(
    comet: Comet, inputs: Mapping[str, Texts], measure: str = "", prefix: str = ""
) -> Measured:
    """The scores of the texts of each system.

    measure: the name of a measure whose texts may be too long for the model
    """
    if measure:
        warn_of_cut_texts(comet, inputs.values(), measure)
    results = {name: Result(comet_score(comet, columns)) for name, columns in inputs.items()}
    return Measured(prefix + comet.signature, results)


def _columns(texts: ScoredTexts) -> dict[str, Texts]:
    """What COMET reads, by system."""
    return {
        name: Texts(texts.sources, lines, texts.references) for name, lines in texts.systems.items()
    }


def _windows(args: argparse.Namespace, texts: ScoredTexts) -> tuple[Slide, list[Document]]:
    slide = Slide(args.slide_window, args.slide_stride or args.slide_window)
    return slide, slide_windows(texts.documents, slide)


def _slide(args: argparse.Namespace, texts: ScoredTexts) -> dict[str, Measured]:
    slide, windows = _windows(args, texts)
    metrics: dict[str, Metric] = {
        "SLIDE-BLEU": build_bleu(args.tokenize, args.lowercase, segments=True),
        "SLIDE-chrF2": CHRF(lowercase=args.lowercase),
    }
    references = [join(lines, windows) for lines in texts.all_references]
    measured = {}
    for name, metric in metrics.items():
        results = {
            system: Result(mean_segment_score(metric, join(lines, windows), references))
            for system, lines in texts.systems.items()
        }
        # The metric has a signature after its first score.
        measured[name] = Measured(f"{slide.signature}|{metric.get_signature()}", results)
    return measured
