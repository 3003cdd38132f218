"""Further measures for `memattn score`, one number a system: of COMET, MetricX, SLIDE, SEGALE."""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from statistics import fmean

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import Result

from fairseq_memattn.evaluation.comet_score import (
    Comet,
    Texts,
    comet_scores,
    load_comet,
    load_context_comet,
    texts_with_context,
    warn_of_cut_texts,
)
from fairseq_memattn.evaluation.document_lines import Document, ScoredTexts, join
from fairseq_memattn.evaluation.metricx_score import TOKENIZER, WORST, metricx_scores
from fairseq_memattn.evaluation.scores import (
    Measured,
    Slide,
    build_bleu,
    segment_scores,
    slide_windows,
)
from fairseq_memattn.evaluation.segale import omitted_and_added, segale_score


def segment_measures(args: argparse.Namespace, texts: ScoredTexts) -> dict[str, Measured]:
    """COMET, document COMET, MetricX, SLIDE and SEGALE, by name, as the options ask for them."""
    measured = {}
    if args.comet_context:
        # First, because it is refused for models that cannot use context.
        comet, size = load_context_comet(args.comet), args.comet_context
        inputs = {
            name: texts_with_context(comet, columns, texts.documents, size)
            for name, columns in _columns(texts).items()
        }
        found = _comet_measured(comet, inputs, "doc-COMET", f"context:{size}|")
        measured["doc-COMET"] = found
    if args.comet:
        measured = _comet(args, texts) | measured
    if args.metricx:
        score = metricx(args)
        results = {name: Result(fmean(score(x))) for name, x in _columns(texts).items()}
        measured["MetricX"] = Measured(f"model:{args.metricx}", results)
    if args.slide_window:
        measured |= _slide(args, texts)
    return measured | (_segale(args, texts) if args.segale else {})


def metricx(args: argparse.Namespace) -> Callable[[Texts], list[float]]:
    return partial(metricx_scores, args.metricx, args.metricx_tokenizer or TOKENIZER)


def _segale(args: argparse.Namespace, texts: ScoredTexts) -> dict[str, Measured]:
    """The shares of omitted and added sentences, and metrics with their worst score for each."""
    chrf = CHRF(lowercase=args.lowercase)
    # The scores of texts, the worst score, and the signature, which chrF has after its scores.
    metrics: dict[str, tuple[Callable[[Texts], list[float]], float, Callable[[], object]]] = {
        "chrF2": (
            lambda x: segment_scores(chrf, x.hypotheses, [x.references]), 0.0, chrf.get_signature
        )
    }  # fmt: skip
    if args.comet:
        comet = load_comet(args.comet)
        metrics["COMET"] = partial(comet_scores, comet), 0.0, lambda: comet.signature
    if args.metricx:
        metrics["MetricX"] = metricx(args), WORST, lambda: f"model:{args.metricx}"
    columns = _columns(texts)
    measured = {}
    for place, what in enumerate(("omitted %", "added %")):
        results = {x: Result(omitted_and_added(one)[place]) for x, one in texts.aligned.items()}
        measured[f"SEGALE {what}"] = Measured("aligner:word-edits", results)
    for name, (scores, worst, signature) in metrics.items():
        results = {
            x: Result(segale_score(scores, columns[x], one, texts.documents, worst))
            for x, one in texts.aligned.items()
        }
        known = f"null:{worst:g}|mean:documents|aligner:word-edits|{signature()}"
        measured[f"SEGALE-{name}"] = Measured(known, results)
    return measured


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
    results = {
        name: Result(fmean(comet_scores(comet, columns))) for name, columns in inputs.items()
    }
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
            system: Result(fmean(segment_scores(metric, join(lines, windows), references)))
            for system, lines in texts.systems.items()
        }
        # The metric has a signature after its first score.
        measured[name] = Measured(f"{slide.signature}|{metric.get_signature()}", results)
    return measured
