"""Features of the linear transformer (Katharopoulos et al., 2020, equation 7): elu(x) + 1."""

from torch import Tensor

from fairseq_memattn.attention.kernels.base import FeatureMap


class ELUFeatures(FeatureMap):
    """phi(x) = elu(x) + 1, for queries and keys alike; F = D.

    There are no parameters, and queries and keys are not scaled.
    """

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.feature_size = head_dim

    def forward(self, x: Tensor, is_query: bool) -> Tensor:
        # Not elu(x) + 1 as it stands: exp(x) - 1 + 1 rounds to 0 where x is far below 0.
        return (x.clamp(max=0).exp() + x.relu()).to(x.dtype)
