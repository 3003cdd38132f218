"""Windows of sentences: how many sentences fit, and the tensors that models take."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from fairseq.data.data_utils import collate_tokens
from torch import Tensor

from fairseq_memattn.data.indices import Indices


@dataclass(frozen=True)
class WindowOptions:
    """How windows are made.

    source_context, target_context: the most previous sentences on either side
    max_source, max_target: the most tokens of a window; it loses whole sentences, oldest first
    source_separator, target_separator: the symbols between two sentences
    pad, eos: the symbols that both dictionaries share
    loss_on_window: whether the loss counts the target's context too, or the current sentence alone
    as_sequences: whether a model wants the source's sentences as tensors of their own
    sample_context: whether the number of previous sentences is drawn anew in every epoch
    """

    source_context: int
    target_context: int
    max_source: int
    max_target: int
    source_separator: int
    target_separator: int
    pad: int
    eos: int
    left_pad_source: bool = True
    loss_on_window: bool = True
    as_sequences: bool = False
    sample_context: bool = False
    seed: int = 1


class WindowCollater:
    """Makes batches of windows; a window is its sentences, oldest first, each ending with eos."""

    def __init__(self, options: WindowOptions) -> None:
        self.options = options

    def sources(
        self, windows: Sequence[Sequence[Tensor]], target_context: Sequence[int]
    ) -> dict[str, Tensor]:
        """The input of the encoder: windows of B sentences, each oldest first.

        target_context: for each how many sentences of the target come before the current one's,
            of which a model that wants sequences is told
        """
        options = self.options
        if not options.as_sequences:
            rows = [joined(window, options.source_separator) for window in windows]
            return self.source_rows(rows)
        most = max(options.source_context, 1)
        empty = torch.empty(0, dtype=torch.long)
        context = [
            [empty] * (most - len(window) + 1) + [s.long() for s in window[:-1]]
            for window in windows
        ]
        flat = self.pad([sentence for window in context for sentence in window], left=False)
        tokens = flat.view(len(windows), most, flat.shape[1])
        mask = tokens.eq(options.pad)
        sequences = {
            "context_tokens": tokens,
            "context_padding_mask": mask,
            "target_context": torch.tensor(target_context),
        }
        return self.source_rows([window[-1] for window in windows]) | sequences

    def targets(
        self, windows: Sequence[Sequence[Tensor]], loss_on_window: bool
    ) -> tuple[Tensor, Tensor]:
        """What the decoder should say and what it is fed, both (B, T), padded on the right."""
        options = self.options
        rows = [joined(window, options.target_separator) for window in windows]
        targets = self.pad(rows, left=False)
        inputs = self.pad([torch.cat([row[-1:], row[:-1]]) for row in rows], left=False)
        if not loss_on_window:
            for row, window in zip(targets, windows, strict=True):
                row[: sum(len(sentence) for sentence in window[:-1])] = options.pad
        return targets, inputs

    def source_rows(self, rows: Sequence[Tensor]) -> dict[str, Tensor]:
        """src_tokens (B, longest) and src_lengths (B,) of B sequences."""
        return {
            "src_tokens": self.pad(rows, left=self.options.left_pad_source),
            "src_lengths": torch.tensor([len(row) for row in rows]),
        }

    def pad(self, rows: Sequence[Tensor], left: bool) -> Tensor:
        """Rows as one tensor (B, longest)."""
        return collate_tokens([row.long() for row in rows], self.options.pad, left_pad=left)


def joined(sentences: Sequence[Tensor], separator: int) -> Tensor:
    """Sentences as one sequence: each but the last with a separator in the place of its eos."""
    row = torch.cat(list(sentences)).long()
    ends = torch.tensor([len(sentence) for sentence in sentences]).cumsum(0) - 1
    row[ends[:-1]] = separator
    return row


def context_counts(sizes: Indices, first: Indices, wanted: int, limit: int) -> Indices:
    """How many previous sentences each window holds: as many whole ones as `limit` allows.

    sizes: (S,) tokens of each sentence, its separator or end of sentence included
    first: (S,) the first sentence of each one's document
    wanted: the most previous sentences; limit: the most tokens of a window
    """
    counts = np.zeros(len(sizes), dtype=np.int64)
    totals = sizes.astype(np.int64)
    sentences = np.arange(len(sizes))
    fits = np.ones(len(sizes), dtype=bool)
    for back in range(1, wanted + 1):
        previous = sentences - back
        fits &= previous >= first
        totals[fits] += sizes[previous[fits]]
        fits &= totals <= limit
        counts[fits] = back
    return counts


def window_sizes(sizes: Indices, counts: Indices) -> Indices:
    """(S,) the tokens of each window, of `counts` previous sentences and the current one."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    current = np.arange(len(sizes))
    return ends[current + 1] - ends[current - counts]
