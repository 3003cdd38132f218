"""What all feature maps have in common."""

from abc import ABC, abstractmethod

from torch import Tensor, nn


class FeatureMap(nn.Module, ABC):
    """phi, with which phi(q) . phi(k) is how much query q attends to key k before normalisation.

    feature_size: F, the size of phi(x)
    floor: what `kernel_attention` and its kin are to be given for these features
    """

    feature_size: int
    floor: float = 0.0

    @abstractmethod
    def forward(self, x: Tensor, is_query: bool) -> Tensor:
        """x: queries or keys (B, H, T, D). Returns (B, H, T, F) in x's dtype."""

    def redraw(self) -> None:
        """Draws anew what is random in the features during training; nothing is, in most maps.

        For whoever attends to call once a training update, before it maps any query or key:
        queries and keys of one sequence have to see the same draw.
        """
