"""Learned features of T2R (Kasai et al., 2021, "Finetuning Pretrained Transformers into RNNs")."""

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.controls.kernel import FeatureMap, KernelControl
from fairseq_memattn.attention.controls.options import ControlOptions, Sizes
from fairseq_memattn.attention.controls.registry import register_control
from fairseq_memattn.attention.ops.common import accumulation_dtype


class T2RFeatures(FeatureMap):
    """phi(x) = relu(W x + b), with a W (F, D) and a b (F) for each head.

    Theirs: the ReLU, weights of each head's own, and one W and b for both its queries and its
    keys (at inference they fold them into the projections, as W W_q and W W_k); neither queries
    nor keys are scaled. Ours: the initialisation, which is `nn.Linear`'s.
    """

    def __init__(self, num_heads: int, head_dim: int, features: int) -> None:
        super().__init__()
        self.feature_size = features
        self.weight = nn.Parameter(torch.empty(num_heads, features, head_dim))
        self.bias = nn.Parameter(torch.empty(num_heads, features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = self.weight.shape[2] ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor, is_query: bool, draw: Tensor | None = None) -> Tensor:
        # Not a product that broadcasts, which copies the weights for every row.
        projected = torch.einsum("bhtd,hfd->bhtf", x, self.weight) + self.bias.unsqueeze(1)
        return projected.relu().to(accumulation_dtype(x))


@register_control("t2r")
class T2RControl(KernelControl):
    """Kasai et al. (2021): learned features, for finetuning a trained transformer."""

    def __init__(self, sizes: Sizes, options: ControlOptions) -> None:
        features = T2RFeatures(sizes.attention_heads, sizes.head_dim, sizes.slots)
        super().__init__(sizes, options, features)
