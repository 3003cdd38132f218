"""Exact match and F1 in validation."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairseq.logging import metrics

from fairseq_memattn.qa.answer_scores import score_answer, total
from fairseq_memattn.qa.question_sets import Record

COUNT = "_answers"
# The name in the log of each of `answer_scores.Score`'s measures, in its order.
MEASURES = ("em", "f1", "precision", "recall")


def statistics(predictions: Sequence[str], records: Sequence[Record]) -> dict[str, float]:
    """The number of questions of a batch, which can be 0, and the sum of each measure."""
    scores = [
        score_answer(text, record.answers, record.rules)
        for text, record in zip(predictions, records, strict=True)
    ]
    sums = {f"_{name}": value for name, value in zip(MEASURES, total(scores), strict=True)}
    return sums | {COUNT: len(scores)}


def log_scores(logging_outputs: Sequence[Mapping[str, Any]]) -> None:
    """Logs the measures of the batches of a validation, in percent."""
    if not any(log.get(COUNT) for log in logging_outputs):
        return
    for key in (COUNT, *(f"_{name}" for name in MEASURES)):
        metrics.log_scalar(key, float(sum(log.get(key, 0) for log in logging_outputs)))
    for name in MEASURES:
        metrics.log_derived(
            name, lambda log, key=f"_{name}": round(100 * log[key].sum / log[COUNT].sum, 3)
        )
