"""Features of the linear transformer (Katharopoulos et al., 2020, equation 7): elu(x) + 1."""

from torch import Tensor

from fairseq_memattn.attention.controls.kernel import FeatureMap, KernelControl
from fairseq_memattn.attention.controls.options import ControlOptions, Sizes
from fairseq_memattn.attention.controls.registry import register_control
from fairseq_memattn.attention.ops.common import accumulation_dtype


class ELUFeatures(FeatureMap):
    """phi(x) = elu(x) + 1, for queries and keys alike; F = D.

    There are no parameters, and queries and keys are not scaled.
    """

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.feature_size = head_dim

    def forward(self, x: Tensor, is_query: bool, draw: Tensor | None = None) -> Tensor:
        x = x.to(accumulation_dtype(x))
        # Not elu(x) + 1 as it stands: exp(x) - 1 + 1 rounds to 0 where x is far below 0.
        return x.clamp(max=0).exp() + x.relu()


@register_control("elu")
class ELUControl(KernelControl):
    """Katharopoulos et al. (2020): as many features as a head has dimensions."""

    def __init__(self, sizes: Sizes, options: ControlOptions) -> None:
        super().__init__(sizes, options, ELUFeatures(sizes.head_dim))
