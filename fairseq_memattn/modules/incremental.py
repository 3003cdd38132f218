"""Modules whose state fairseq's incremental decoding keeps from step to step."""

from collections.abc import Callable
from typing import Any

import torch
from fairseq.incremental_decoding_utils import FairseqIncrementalState
from torch import Tensor, nn

from fairseq_memattn.attention.ops.common import possibly_any

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


def is_identity(order: Tensor, size: int) -> bool:
    """Whether a new order keeps a batch of this size as it is, as greedy search mostly does.

    A GPU, where a copy takes less time than waiting for the answer, is not asked.
    """
    return len(order) == size and not possibly_any(order != torch.arange(size, device=order.device))
