"""Modules whose state fairseq's incremental decoding keeps from step to step."""

from collections.abc import Callable
from typing import Any

import torch
from fairseq.incremental_decoding_utils import FairseqIncrementalState
from torch import Tensor, nn

from fairseq_memattn.attention.ops.common import is_immediate

IncrementalState = dict[str, Any]


class IncrementalModule(FairseqIncrementalState, nn.Module):
    """A module with one state in fairseq's `incremental_state`: nested tuples with `reorder`."""

    get_incremental_state: Callable[..., Any]
    set_incremental_state: Callable[..., Any]

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
