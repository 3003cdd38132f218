"""The best spans of a window, and the answers to a question from the spans of all its windows."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LONGEST = 30  # default maximum number of tokens of an answer (BERT's run_squad)


class Candidate(NamedTuple):
    """The span of tokens from `first` to `last`, inclusive; its score is the sum of both ends'."""

    score: float
    first: int
    last: int


class Answer(NamedTuple):
    """An answer to a question; its probability is a softmax over the answers in the same list."""

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
    """The spans of a window's C tokens with the highest scores, best first.

    The score of a span (i, j) is starts[i] + ends[j]. All spans are compared, while BERT's
    run_squad combines only the best starts with the best ends.

    starts, ends: (C,) the score of each token as the first and as the last of a span
    allowed: (C,) True where a span may begin
    places: (C, 2) each token's first character and the one after its last; spans without characters
        are left out
    longest: the maximum number of tokens of a span; most: the maximum number of spans
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
    """The texts of the best spans, each text once, best first; empty without candidates.

    candidates: from all windows; `first` and `last` are tokens of the context
    places: (L, 2) characters of the context's tokens, as in `best_spans`
    most: the maximum number of spans whose texts are compared
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
    """The text of the first answer; empty if there is none."""
    return answers[0].text if answers else ""


def _softmax(scores: Sequence[float]) -> list[float]:
    exponentials = [math.exp(score - scores[0]) for score in scores]
    return [exponential / sum(exponentials) for exponential in exponentials]
