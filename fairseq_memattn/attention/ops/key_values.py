"""Keys and values that softmax attention keeps while decoding."""

from typing import NamedTuple

import torch
from torch import Tensor


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
        masks = [
            x.keys.new_ones(x.keys.shape[0], 1, 1, x.keys.shape[2]).bool()
            if x.visible is None
            else x.visible
            for x in (self, new)
        ]
        return joined._replace(visible=torch.cat(masks, dim=3))

    def reorder(self, new_order: Tensor) -> "KeyValues":
        """The rows new_order (B',) of the batch, which survive a beam step."""
        keys, values = (x.index_select(0, new_order) for x in self[:2])
        visible = None if self.visible is None else self.visible.index_select(0, new_order)
        return KeyValues(keys, values, visible)
