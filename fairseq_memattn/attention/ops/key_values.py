"""Keys and values that softmax attention keeps while decoding."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


class KeyValues(NamedTuple):
    """The keys and values of a sequence, batch first.

    keys, values  (B, H, S, D)
    visible       (B, 1, 1, S), False at padding; None where all positions are visible
    """

    keys: Tensor
    values: Tensor
    visible: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> "KeyValues":
        """With the keys and values (B, H, T, D) of T more positions. All must be visible."""
        return KeyValues(
            torch.cat([self.keys, keys], dim=2), torch.cat([self.values, values], dim=2)
        )

    def join(self, new: "KeyValues") -> "KeyValues":
        """With those of further positions."""
        joined = self.append(new.keys, new.values)
        if self.visible is None and new.visible is None:
            return joined
        return joined._replace(visible=torch.cat([self.mask(), new.mask()], dim=3))

    def mask(self) -> Tensor:
        """`visible` as a tensor (B, 1, 1, S)."""
        if self.visible is not None:
            return self.visible
        return self.keys.new_ones(self.keys.shape[0], 1, 1, self.keys.shape[2]).bool()

    def lengthened(self, length: int) -> "KeyValues":
        """With padding before the first position, to `length` of them."""
        more = length - self.keys.shape[2]
        keys, values = (pad(x, (0, 0, more, 0)) for x in self[:2])
        return KeyValues(keys, values, pad(self.mask(), (more, 0)))

    def shortened(self) -> "KeyValues":
        """Without the first positions if they are padding in all rows. Reads numbers of a GPU."""
        if self.visible is None:
            return self
        seen = self.visible.any(dim=0).flatten()
        kept = self.split(int(seen.int().argmax()))[1]
        return kept if not bool(kept.mask().all()) else kept._replace(visible=None)

    def split(self, count: int) -> tuple["KeyValues", "KeyValues"]:
        """The first `count` positions, and those after them."""
        axes = zip(self, (2, 2, 3), strict=True)
        parts = [(x, x) if x is None else x.tensor_split([count], dim=axis) for x, axis in axes]
        first, last = (KeyValues(*part) for part in zip(*parts, strict=True))
        return first, last

    def reorder(self, new_order: Tensor) -> "KeyValues":
        """The rows new_order (B',) of the batch, which survive a beam step."""
        keys, values = (x.index_select(0, new_order) for x in self[:2])
        visible = None if self.visible is None else self.visible.index_select(0, new_order)
        return KeyValues(keys, values, visible)


def concatenate_rows(states: Sequence[Any]) -> Any:
    """The states of several batches, such as those of `ABCAttention.step`, as that of one batch.

    states: of the same layer or model, of any lengths. Rows leave a batch by `state.reorder`
    """
    first = states[0]
    if isinstance(first, Tensor):
        return torch.cat(list(states))
    if isinstance(first, KeyValues):
        longest = max(x.keys.shape[2] for x in states)
        if any(x.visible is not None or x.keys.shape[2] < longest for x in states):
            states = [x.lengthened(longest) for x in states]
    if isinstance(first, tuple | list):
        parts = [concatenate_rows(x) for x in zip(*states, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return first
