"""The likeliest spans of windows, and the answers of a question whose context has several."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LONGEST = 30  # tokens of an answer unless told (BERT's run_squad)


class Candidate(NamedTuple):
    """A span of tokens, its last one included; the score is the sum of those of both ends."""

    score: float
    first: int
    last: int


class Answer(NamedTuple):
    """A text and its probability among the answers to a question that are listed with it."""

    text: str
    score: float
    probability: float


def best_spans(
    starts: NDArray[Any],
    ends: NDArray[Any],
    allowed: NDArray[np.bool_],
    places: NDArray[Any],
    longest: int,
    most: int,
) -> list[Candidate]:
    """The spans of a window's C tokens with the highest scores, these first.

    They are found exactly, while BERT's run_squad joins the best starts with the best ends alone.

    starts, ends: (C,) scores of tokens to be the first and the last
    allowed: (C,) whether a span may begin there
    places: (C, 2) each token's first character and the one behind its last; a span without any
        characters is none
    longest: the most tokens of a span; most: how many spans there are at most
    """
    size = len(starts)
    first = np.arange(size)[:, None]
    last = first + np.arange(min(longest, size))
    inside = last < size
    last = np.minimum(last, size - 1)
    has_text = places[last, 1] > places[first, 0]
    scores = np.where(inside & has_text & allowed[:, None], starts[:, None] + ends[last], -math.inf)
    order = np.argsort(-scores, axis=None, kind="stable")[:most]
    rows, columns = np.unravel_index(order, scores.shape)
    return [
        Candidate(float(scores[row, column]), int(row), int(row + column))
        for row, column in zip(rows, columns, strict=True)
        if scores[row, column] > -math.inf
    ]


def answers_of(
    candidates: Iterable[Candidate], context: str, places: NDArray[Any], most: int
) -> list[Answer]:
    """The texts of spans, each once, the best first; none without any candidate.

    candidates: of all windows, as tokens of the context
    places: (L, 2) as for `best_spans`, of the context
    """
    scores: dict[str, float] = {}
    ranked = sorted(candidates, key=lambda one: (-one.score, one.first, one.last))
    for score, first, last in ranked[:most]:
        scores.setdefault(context[places[first, 0] : places[last, 1]], score)
    return [
        Answer(text, score, probability)
        for (text, score), probability in zip(
            scores.items(), _softmax([*scores.values()]), strict=True
        )
    ]


def best_text(answers: Sequence[Answer]) -> str:
    """The text of the first; empty without any."""
    return answers[0].text if answers else ""


def _softmax(scores: Sequence[float]) -> list[float]:
    powers = [math.exp(score - scores[0]) for score in scores]
    return [power / sum(powers) for power in powers]
