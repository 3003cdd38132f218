"""Windows of tokens over contexts that are too long for a model, as BERT's run_squad has them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairseq_memattn.data.indices import Indices


class Windows(NamedTuple):
    """W windows: whose context each is of, its first token there, and how many it has; (W,)."""

    context: Indices
    first: Indices
    tokens: Indices


def cut_windows(lengths: Indices, rooms: Indices, stride: int) -> Windows:
    """The windows of N contexts, in their order: the next begins `stride` tokens behind the last.

    lengths: (N,) tokens of each context; one without any has one window
    rooms: (N,) the most tokens of a window of each, 1 or more. Where the stride is more, it is the
        stride, and no token is left out.
    """
    steps = np.minimum(stride, rooms)
    counts = 1 + np.maximum(0, -(-(lengths - rooms) // steps))
    context = np.repeat(np.arange(len(lengths)), counts)
    place = np.arange(len(context)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = place * steps[context]
    return Windows(context, first, np.minimum(rooms[context], lengths[context] - first))


def best_windows(first: Indices, tokens: Indices, length: int) -> NDArray[np.int64]:
    """(L,) for each token of a context the window, from 0, in which it has most of it around it.

    That is the greatest of its tokens on the side where there are fewer, plus a hundredth of the
    window's length; the first such window (BERT's run_squad: the maximum context).

    first, tokens: (W,) those of the context's windows
    """
    before = np.arange(length) - first[:, None]
    behind = tokens[:, None] - 1 - before
    least = np.minimum(before, behind)
    score = np.where(least >= 0, least + 0.01 * tokens[:, None], -np.inf)
    return np.asarray(score.argmax(axis=0))
