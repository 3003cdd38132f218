"""The tensors of a batch of windows of sentences."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from fairseq.data.data_utils import collate_tokens
from torch import Tensor

from fairseq_memattn.documents.windows import joined


@dataclass(frozen=True)
class WindowOptions:
    """How windows are made.

    source_context, target_context: the largest number of previous sentences on either side
    max_source, max_target: the largest number of tokens of a window on either side. A longer
        window loses whole sentences, oldest first
    source_separator, target_separator: indices of the symbol between two sentences
    pad, eos: indices of these symbols, which both dictionaries share
    loss_on_window: whether the loss includes the target's context, or the current sentence only
    last_of_documents: whether the loss is that of the last window of each document alone
    as_sequences: whether the model takes the sentences of a source as separate sequences
    mixed: whether some models of an ensemble do, and others take windows
    sample_context: whether each epoch draws the number of previous sentences at random
    seed: of these random numbers
    source_token, target_token: indices of a symbol before each window, which max_source and
        max_target do not count; None without
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
    last_of_documents: bool = False
    as_sequences: bool = False
    mixed: bool = False
    sample_context: bool = False
    seed: int = 1
    source_token: int | None = None
    target_token: int | None = None

    def source_start(self) -> Tensor:
        """What comes before each window, (1,) or (0,)."""
        return _start(self.source_token)

    def target_start(self) -> Tensor:
        return _start(self.target_token)


def _start(token: int | None) -> Tensor:
    return torch.tensor([] if token is None else [token], dtype=torch.long)


class WindowCollater:
    """Makes the tensors of a batch of windows.

    A window is a list of sentences, oldest first, each ending with eos.
    """

    def __init__(self, options: WindowOptions) -> None:
        self.options = options

    def sources(
        self, windows: Sequence[Sequence[Tensor]], target_context: Sequence[int]
    ) -> dict[str, Any]:
        """The encoder's arguments for B windows, see `DocumentDataset.collater`.

        target_context: the number of target sentences before the current one in each window, an
            argument of models that take sequences

        With `mixed` they are those of models that take windows, beside `sequences`, which has
        those of the others: see `own_inputs`.
        """
        options = self.options
        if options.mixed:
            kinds = (replace(options, mixed=False, as_sequences=kind) for kind in (False, True))
            plain, several = (WindowCollater(k).sources(windows, target_context) for k in kinds)
            return {**plain, "sequences": several}
        if not options.as_sequences:
            start = options.source_start()
            rows = [joined(window, options.source_separator) for window in windows]
            return self.source_rows([torch.cat([start, row]) for row in rows])
        current = self.source_rows([window[-1] for window in windows]) | {
            "target_context": torch.tensor(target_context)
        }
        size = options.source_context
        if not size:
            return current
        empty = torch.empty(0, dtype=torch.long)
        context = [
            [empty] * (size - len(window) + 1) + [s.long() for s in window[:-1]]
            for window in windows
        ]
        flat = self.pad([sentence for window in context for sentence in window], left=False)
        tokens = flat.view(len(windows), size, flat.shape[1])
        mask = tokens.eq(options.pad)
        return current | {"context_tokens": tokens, "context_padding_mask": mask}

    def targets(
        self, windows: Sequence[Sequence[Tensor]], loss_on_window: bool
    ) -> tuple[Tensor, Tensor]:
        """The decoder's targets and its inputs, both (B, T), padded on the right.

        loss_on_window: whether the targets include the context; if not, padding replaces it
        """
        options = self.options
        start = options.target_start()
        rows = [torch.cat([start, joined(x, options.target_separator)]) for x in windows]
        targets = self.pad(rows, left=False)
        inputs = self.pad([torch.cat([row[-1:], row[:-1]]) for row in rows], left=False)
        if not loss_on_window:
            for row, window in zip(targets, windows, strict=True):
                context = sum(len(sentence) for sentence in window[:-1])
                row[: len(start) + context] = options.pad
        return targets, inputs

    def source_rows(self, rows: Sequence[Tensor]) -> dict[str, Tensor]:
        """src_tokens (B, S) and src_lengths (B,) of B sequences."""
        return {
            "src_tokens": self.pad(rows, left=self.options.left_pad_source),
            "src_lengths": torch.tensor([len(row) for row in rows]),
        }

    def pad(self, rows: Sequence[Tensor], left: bool) -> Tensor:
        """B rows as one tensor (B, T), where T is the length of the longest row."""
        return collate_tokens([row.long() for row in rows], self.options.pad, left_pad=left)


def takes_sequences(model: Any) -> bool:
    """Whether a model, or a class of models, takes the sentences of a source one by one."""
    return bool(getattr(model, "takes_sequences", False))


def for_models(options: WindowOptions, models: Sequence[Any]) -> WindowOptions:
    """The options with which all models of an ensemble get their inputs."""
    kinds = {takes_sequences(model) for model in models}
    return replace(options, mixed=len(kinds) > 1, as_sequences=any(kinds))


def own_inputs(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """A model's inputs among those of an ensemble."""
    own = dict(inputs)
    sequences = own.pop("sequences", {})
    return own | sequences if takes_sequences(model) else own
