"""BLEU and chrF of one or several systems, of sentences and of documents.

sacreBLEU (Post, 2018) computes scores, intervals and the p-values of paired bootstrap resampling
(Koehn, 2004) or approximate randomisation (Riezler and Maxwell, 2005). For the same text, its
command line prints the same numbers.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result
from tqdm import tqdm

from fairseq_memattn.evaluation.document_lines import Document, join

# For each resample and sentence, sacreBLEU holds an index and the statistics of chrF2: eight bytes,
# and 18 numbers of four.
BYTES_OF_A_DRAW = 8 + 18 * 4
SEED_VARIABLE = "SACREBLEU_SEED"
# With fewer, equally good systems often have a small p.
FEWEST_SEGMENTS = 20
# The paired tests, with sacreBLEU's names for them
TESTS = {"bootstrap": "bs", "randomisation": "ar"}


@dataclass(frozen=True)
class Measure:
    """A metric with its references, and the text of each system that it measures."""

    name: str
    metric: Metric
    hypotheses: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Measured:
    """One measure's signature, and the `Result` of each system; the first is the baseline.

    segments: how many the test resamples; None for a measure without one
    """

    signature: str
    results: dict[str, Result]
    segments: int | None = None

    @property
    def too_few(self) -> bool:
        """Whether there are too few segments for p-values."""
        return self.segments is not None and self.segments < FEWEST_SEGMENTS


def build_measures(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    documents: Sequence[Document] | None = None,
    tokenize: str = "13a",
    lowercase: bool = False,
    more_references: Sequence[Sequence[str]] = (),
) -> list[Measure]:
    """BLEU and chrF of sentences. With documents these are s-BLEU, d-BLEU and chrF.

    systems: the hypotheses of each system, as many as there are references
    more_references: of other translators, each as many lines

    Raises ValueError for a tokenizer that sacreBLEU does not have or cannot load.
    """
    sentences = [references, *more_references]
    chrf = Measure("chrF2", CHRF(lowercase=lowercase, references=sentences), systems)
    bleu = build_bleu(tokenize, lowercase, sentences)
    if documents is None:
        return [Measure("BLEU", bleu, systems), chrf]
    joined = {name: join(lines, documents) for name, lines in systems.items()}
    by_document = build_bleu(tokenize, lowercase, [join(one, documents) for one in sentences])
    return [Measure("s-BLEU", bleu, systems), Measure("d-BLEU", by_document, joined), chrf]


def build_bleu(
    tokenize: str,
    lowercase: bool = False,
    references: Sequence[Sequence[str]] | None = None,
    *,
    segments: bool = False,
    option: str = "--tokenize",
) -> BLEU:
    """The metric.

    segments: whether it scores single segments, in which longer n-grams may not occur
    option: the one that names the tokenizer, for error messages

    Raises ValueError for a tokenizer that sacreBLEU does not have or cannot load.
    """
    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(f"{option} must be one of {', '.join(BLEU.TOKENIZERS)}, but is {tokenize}")
    try:
        return BLEU(
            tokenize=tokenize,
            lowercase=lowercase,
            # Suppresses sacreBLEU's warning about tokenised text, which every call would print.
            force=True,
            references=references,
            effective_order=segments,
        )
    except RuntimeError as error:
        raise ValueError(f"{option} {tokenize}: {' '.join(str(error).split())}") from None
    except OSError as error:
        raise ValueError(
            f"{option} {tokenize}: sacreBLEU could not download its model: {error}"
        ) from None


def standard_line(measure: Measure, system: str) -> str:
    """Signature, score and details in sacreBLEU's format, with the measure's name."""
    score = measure.metric.corpus_score(measure.hypotheses[system], None)
    score.name = measure.name
    return score.format(width=2, signature=str(measure.metric.get_signature()))


def measure_all(
    measures: Sequence[Measure], resamples: int, seed: int, test: str = "bootstrap"
) -> dict[str, Measured]:
    """The results of each measure, by name.

    Fewer than `FEWEST_SEGMENTS` segments have no p-values, and one segment has no interval.

    resamples: number of bootstrap resamples, and of trials of the randomisation; 0 means no
        intervals and no p-values
    seed: of the bootstrap and the randomisation, at least 1
    test: one of `TESTS`
    """
    with _sacrebleu_seed(seed):
        return {
            measure.name: _measure(measure, resamples, TESTS[test])
            for measure in tqdm(measures, desc="scoring", unit="measure", disable=None)
        }


def resampling_memory(sentences: int, resamples: int) -> int:
    """The bytes of memory that the bootstrap takes."""
    return BYTES_OF_A_DRAW * sentences * resamples


def _measure(measure: Measure, resamples: int, test_type: str) -> Measured:
    segments = len(next(iter(measure.hypotheses.values())))
    if not resamples or segments < 2:
        results = {
            name: Result(measure.metric.corpus_score(lines, None).score)
            for name, lines in measure.hypotheses.items()
        }
        return Measured(str(measure.metric.get_signature()), results, segments)
    test = PairedTest(
        list(measure.hypotheses.items()),
        {measure.name: measure.metric},
        references=None,
        test_type=test_type,
        n_samples=resamples,
        n_ar_confidence=resamples,
    )
    signatures, columns = test()
    # There is one metric, so there is one signature. Its results are in the column of its name.
    ((column, signature),) = signatures.items()
    each = cast(list[Result], columns[column])
    for result in each[1:]:
        # For equal scores, sacreBLEU's strict comparison would give a small p.
        if result.score == each[0].score:
            result.p_value = 1.0
        if segments < FEWEST_SEGMENTS:
            result.p_value = None
    return Measured(str(signature), dict(zip(measure.hypotheses, each, strict=True)), segments)


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Sets the environment variable from which sacreBLEU reads its seed. It reads 0 as no seed."""
    before = os.environ.get(SEED_VARIABLE)
    os.environ[SEED_VARIABLE] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[SEED_VARIABLE]
        else:
            os.environ[SEED_VARIABLE] = before


def by_document(
    measures: Sequence[Measure], references: Sequence[Sequence[str]], documents: Sequence[Document]
) -> list[dict[str, Any]]:
    """The id and the number of sentences of each document, and its s-BLEU and chrF by system.

    measures: those of `build_measures`; d-BLEU is left out
    references: of one translator or several
    """
    return [
        {
            "document": name,
            "sentences": stop - start,
            "systems": group_scores(measures, references, range(start, stop)),
        }
        for name, start, stop in tqdm(documents, unit="document", disable=None)
    ]


def group_scores(
    measures: Sequence[Measure], references: Sequence[Sequence[str]], chosen: Sequence[int]
) -> dict[str, dict[str, float]]:
    """The scores of the chosen sentences, by system and measure; d-BLEU is left out.

    references: of one translator or several
    """
    group = [[lines[index] for index in chosen] for lines in references]
    scores: dict[str, dict[str, float]] = {}
    for measure in measures:
        if measure.name == "d-BLEU":
            continue
        for system, lines in measure.hypotheses.items():
            score = measure.metric.corpus_score([lines[index] for index in chosen], group)
            scores.setdefault(system, {})[measure.name] = score.score
    return scores


class Slide(NamedTuple):
    """The number of sentences in a window, and the distance between the starts of two windows."""

    window: int
    stride: int

    @property
    def signature(self) -> str:
        return f"window:{self.window}|stride:{self.stride}|tail:shifted"


def slide_windows(documents: Sequence[Document], slide: Slide) -> list[Document]:
    """The windows of all documents, in order; no window has sentences of two documents.

    Windows start at the first sentence of a document and every `stride` sentences after it. The
    last window is that of the last `window` sentences, so it may overlap the one before by more
    than the others do, and each sentence is in a window. A document that is shorter than a window
    is one window.
    """
    windows = []
    for name, start, stop in documents:
        last = max(start, stop - slide.window)
        for first in (*range(start, last, slide.stride), last):
            windows.append(Document(name, first, min(first + slide.window, stop)))
    return windows


def segment_scores(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> list[float]:
    """sacreBLEU's scores of single segments.

    references: the segments of one translator or several
    """
    segments = zip(hypotheses, *references, strict=True)
    return [metric.sentence_score(hypothesis, own).score for hypothesis, *own in segments]
