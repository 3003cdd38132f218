"""Windows of tokens over contexts that are too long for a model, as in BERT's run_squad."""

from typing import NamedTuple

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
