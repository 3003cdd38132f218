"""Modules whose state fairseq's incremental decoding keeps from step to step."""

from collections.abc import Callable
from typing import Any

import torch
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor

from fairseq_memattn.attention.ops.common import is_immediate
from fairseq_memattn.modules.dropout import KeepsDropout, use_fairseq_dropout_within

IncrementalState = dict[str, Any]


class NetworkDecoder(KeepsDropout, FairseqIncrementalDecoder):
    """A base that makes a decoder of `networks` one of fairseq.

    It has one state in fairseq's `incremental_state`: nested tuples with `reorder`. Subclasses have
    `extract_features`, and `logits` from its states (B, T, E).
    """

    init_incremental_state: Callable[[], None]
    get_incremental_state: Callable[..., Any]
    set_incremental_state: Callable[..., Any]
    extract_features: Any
    logits: Any
    adaptive_softmax, onnx_trace = None, False

    def enter_fairseq(self, dictionary: Any, max_positions: int) -> None:
        """Completes the network, whose `__init__` has been called, with what fairseq needs."""
        self.dictionary, self.positions = dictionary, max_positions
        self.init_incremental_state()
        use_fairseq_dropout_within(self)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: IncrementalState | None = None,
        src_lengths: Any = None,
        features_only: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """prev_output_tokens: (B, T); while decoding, all tokens so far

        Returns logits (B, T, symbols), while decoding those of the new positions alone, and what
        `extract_features` returns beside the states.
        """
        x, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        return (x if features_only else self.output_layer(x)), extra

    def output_layer(self, features: Tensor, **kwargs: Any) -> Tensor:
        """(B, T, E) to logits (B, T, symbols)."""
        return self.logits(features)

    def max_positions(self) -> int:
        """fairseq's hook: the longest target."""
        return self.positions

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """fairseq's hook: selects the states of the hypotheses that survived a beam step."""
        state = first = self.get_incremental_state(incremental_state, "state")
        while isinstance(first, tuple):
            first = first[0]
        if state is not None and not is_identity(new_order, len(first)):
            self.set_incremental_state(incremental_state, "state", state.reorder(new_order))
        return incremental_state


def is_identity(order: Tensor, size: int, copies: int = 1) -> bool:
    """Whether a new order keeps a batch of this size as it is, as greedy search mostly does.

    copies: the number of equal adjacent rows, which may change places

    A GPU, where a copy takes less time than waiting for the answer, is not asked.
    """
    if len(order) != size or not is_immediate(order):
        return False
    rows = torch.arange(size)
    return torch.equal(order, rows) if copies == 1 else torch.equal(order // copies, rows // copies)


def all_copies(x: Tensor, copies: int) -> bool:
    """Whether the rows of x are groups of `copies` adjacent equal rows."""
    if copies == 1 or len(x) % copies:
        return copies == 1
    return bool(equal_in_groups(x, copies))


def equal_in_groups(x: Tensor, copies: int) -> Tensor:
    groups = x.unflatten(0, (-1, copies))
    return (groups == groups[:, :1]).all()
