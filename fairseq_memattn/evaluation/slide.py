"""SLIDE: a segment metric on a window that slides over each document (Raunak et al., 2023)."""

from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics.base import Metric

from fairseq_memattn.evaluation.document_lines import Document


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


def mean_segment_score(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> float:
    """The mean of sacreBLEU's scores of single segments.

    references: the segments of one translator or several
    """
    segments = zip(hypotheses, *references, strict=True)
    scores = [metric.sentence_score(hypothesis, own).score for hypothesis, *own in segments]
    return sum(scores) / len(scores)
