"""Windows of contexts, the best spans of each, and the answers from those of all windows."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class Windows(NamedTuple):
    """The context of each of W windows, its first token there, and its number of tokens; (W,)."""

    context: Indices
    first: Indices
    tokens: Indices


def cut_windows(lengths: Indices, rooms: Indices, stride: int) -> Windows:
    """The windows of N contexts, in their order: each begins `stride` tokens after the one before.

    lengths: (N,) tokens of each context; an empty context has one window
    rooms: (N,) the maximum number of tokens of a window of each context, at least 1. Where it is
        less than the stride, it is the stride, so that no token is left out
    """
    steps = np.minimum(stride, rooms)
    counts = 1 + np.maximum(0, -(-(lengths - rooms) // steps))
    context = np.repeat(np.arange(len(lengths)), counts)
    place = np.arange(len(context)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = place * steps[context]
    return Windows(context, first, np.minimum(rooms[context], lengths[context] - first))


def best_windows(first: Indices, tokens: Indices, length: int) -> NDArray[np.int64]:
    """(L,) for each token of a context the window, from 0, with the most context around the token.

    The score of a window is min(tokens before, tokens after) + 0.01 x tokens of the window; of
    equal windows the first is taken (BERT's run_squad: the maximum context).

    first, tokens: (W,) as in `Windows`, of the context's windows; length: L
    """
    before = np.arange(length) - first[:, None]
    after = tokens[:, None] - 1 - before
    least = np.minimum(before, after)
    score = np.where(least >= 0, least + 0.01 * tokens[:, None], -np.inf)
    return np.asarray(score.argmax(axis=0))


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
