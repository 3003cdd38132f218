"""What is kept from step to step while decoding."""

from collections.abc import Callable
from typing import Any

import torch
from fairseq.incremental_decoding_utils import FairseqIncrementalState
from torch import Tensor, nn

IncrementalState = dict[str, Any]


class Remembering(FairseqIncrementalState, nn.Module):
    """Something that is kept from step to step while decoding."""

    get_incremental_state: Callable[..., Any]
    set_incremental_state: Callable[..., Any]

    def remember(self, incremental_state: IncrementalState | None, value: Any) -> None:
        if incremental_state is not None:
            self.set_incremental_state(incremental_state, "remembered", value)

    def remembered(self, incremental_state: IncrementalState | None) -> Any:
        """What the steps before have left, or None."""
        if incremental_state is None:
            return None
        return self.get_incremental_state(incremental_state, "remembered")

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """fairseq's hook: the states of the hypotheses that survived a beam step."""
        state = self.remembered(incremental_state)
        if state is not None and not is_identity(new_order, len(state[0])):
            self.remember(incremental_state, reordered(state, new_order))
        return incremental_state


def reordered(state: Any, new_order: Tensor) -> Any:
    """A tuple of batch-first tensors, or a state that knows how to reorder itself."""
    if hasattr(state, "reorder"):
        return state.reorder(new_order)
    return tuple(tensor.index_select(0, new_order) for tensor in state)


def is_identity(order: Tensor, size: int) -> bool:
    """Whether a new order leaves a batch of this size as it is, as greedy search mostly does."""
    return len(order) == size and torch.equal(order, torch.arange(size, device=order.device))
