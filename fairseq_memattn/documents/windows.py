"""Windows of sentences: the number of sentences in a window, and their tokens. Without fairseq."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fairseq_memattn.documents.ids import Indices


def joined(sentences: Sequence[Tensor], separator: int) -> Tensor:
    """Sentences as one sequence. A separator replaces the eos of each sentence but the last."""
    row = torch.cat(list(sentences)).long()
    ends = torch.tensor([len(sentence) for sentence in sentences]).cumsum(0) - 1
    row[ends[:-1]] = separator
    return row


def target_prefix(
    context: Sequence[Tensor], most: int, room: int, *, separator: int, eos: int
) -> Tensor:
    """The target context (P,) in the form of training: a separator ends each sentence, not eos.

    context: the translations of the previous sentences, oldest first, each ending with eos
    most: the largest number of them; room: the largest P. Sentences are left out, oldest first
    """
    kept = [tokens.cpu() for tokens in context[max(0, len(context) - most) :]]
    while sum(map(len, kept)) > room:
        kept.pop(0)
    return joined([*kept, torch.tensor([eos])], separator)[:-1]


def context_room(max_length: int, max_window: int) -> int:
    """The largest number of tokens of the target context.

    max_length: of the translation, and max_window: of context and translation, both without eos
    """
    return max_window - min(max_length, max_window // 2)


def target_context_counts(
    source_counts: Indices, available: Indices, source_context: int, target_context: int
) -> Indices:
    """(S,), the number of previous target sentences in each window, whatever their lengths.

    source_counts: (S,), the number of previous source sentences; available: (S,), of all previous
        sentences; source_context, target_context: the largest numbers
    """
    counts = np.minimum(available, target_context)
    if target_context <= source_context:
        # A target sentence without its source sentence in the window cannot be predicted.
        counts = np.minimum(counts, source_counts)
    return counts


def context_counts(sizes: Indices, first: Indices, max_context: int, max_tokens: int) -> Indices:
    """(S,), the number of previous sentences in each window, at most the two limits.

    sizes: (S,), tokens of each sentence, with its separator or eos
    first: (S,), the first sentence of the document of each sentence
    max_context: the largest number of previous sentences
    max_tokens: the largest number of tokens of a window
    """
    counts = np.zeros(len(sizes), dtype=np.int64)
    totals = sizes.astype(np.int64)
    sentences = np.arange(len(sizes))
    fits = np.ones(len(sizes), dtype=bool)
    for back in range(1, max_context + 1):
        previous = sentences - back
        fits &= previous >= first
        totals[fits] += sizes[previous[fits]]
        fits &= totals <= max_tokens
        if not fits.any():
            break
        counts[fits] = back
    return counts


def window_sizes(sizes: Indices, counts: Indices) -> Indices:
    """(S,), the tokens of each window, which has `counts` (S,) previous sentences."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    current = np.arange(len(sizes))
    return ends[current + 1] - ends[current - counts]
