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

    def reorder(self, new_order: Tensor) -> "KeyValues":
        """The keys and values of the hypotheses that survive a beam step.

        new_order: (B',) indices into the batch axis.
        """
        visible = self.visible
        return KeyValues(
            self.keys.index_select(0, new_order),
            self.values.index_select(0, new_order),
            None if visible is None else visible.index_select(0, new_order),
        )
