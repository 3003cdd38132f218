"""Low-rank updates of trained projections.

Source: Hu et al., 2021, *LoRA: Low-rank adaptation of large language models*, section 4.1, and
Zhang et al., 2024, *LoLCATs: On low-rank linearizing of large language models*, section 3.3, for
models whose softmax attention has been replaced.
"""

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.utils import parametrize

from fairseq_memattn.attention.nn.abc import ABCAttention

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


class LowRank(nn.Module):
    """The parametrization W + up down of a weight W (O, I), with up (O, R) and down (R, I).

    LoRA's scale alpha / R is 1: alpha is R. As in LoRA's program, down is uniform within
    1 / sqrt(I), and up is zero, so that the first weight is W.

    weight: W; rank: R
    """

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        self.up = nn.Parameter(weight.new_zeros(len(weight), rank))
        self.down = nn.Parameter(weight.new_empty(rank, weight.shape[1]))
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.up @ self.down


def projections_of(model: nn.Module) -> list[nn.Linear]:
    """Those of all bounded attentions."""
    return [getattr(one, name) for one in attentions(model) for name in PROJECTIONS]


def give_updates(projections: Iterable[nn.Linear], rank: int) -> None:
    """Gives each projection an update, beside which its weight does not learn any more."""
    for projection in projections:
        projection.weight.requires_grad_(False)
        update = LowRank(projection.weight, rank)
        parametrize.register_parametrization(projection, "weight", update)


def merge_updates(model: nn.Module) -> None:
    """Adds the updates to the weights, which gives a model without updates and the same outputs."""
    for attention in attentions(model):
        for name in PROJECTIONS:
            projection = getattr(attention, name)
            if parametrize.is_parametrized(projection, "weight"):
                setattr(attention, name, _merged(projection))


def attentions(model: nn.Module) -> list[ABCAttention]:
    return [module for module in model.modules() if isinstance(module, ABCAttention)]


def _merged(projection: nn.Linear) -> nn.Linear:
    # torch's own function, remove_parametrizations, would break the copies of the model.
    sizes = projection.in_features, projection.out_features
    plain = nn.Linear(*sizes, bias=False, device="meta")
    plain.weight = nn.Parameter(projection.weight.detach(), requires_grad=False)
    plain.bias = projection.bias
    return plain
