"""Low-rank updates of trained projections: `--abc-low-rank`.

Source: Hu et al., 2021, *LoRA: Low-rank adaptation of large language models*, section 4.1, and
Zhang et al., 2024, *LoLCATs: On low-rank linearizing of large language models*, section 3.3, for
models whose softmax attention has been replaced.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.errors import MemAttnError, flag

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
# Modules that a conversion adds. They have not been trained, so they learn beside the updates.
ADDED = {
    *("controls", "causal_controls", "cross_controls", "causal_gates", "cross_gates"),
    *("memory_tokens", "memory_proj"),
}
# Two kinds of noise assign to weights that are computed here, and fairseq cannot recompute a layer
# in which nothing learns.
REFUSED = ("quant_noise_pq", "quant_noise_scalar", "checkpoint_activations")
# The names of a weight and its update after that of their projection.
ORIGINAL, UP, DOWN = (f"parametrizations.weight.{part}" for part in ("original", "0.up", "0.down"))


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


def add_updates(model: nn.Module, args: Any) -> None:
    """Gives the projections of bounded attentions updates, and freezes the trained weights.

    args: the model's options, of which abc_low_rank is the rank R; 0 changes nothing

    Raises MemAttnError for a model without bounded attentions, and for options that do not work
    with updates.
    """
    rank = args.abc_low_rank
    if not rank:
        return
    projections = [getattr(one, name) for one in _attentions(model) for name in PROJECTIONS]
    _check(rank, projections, args)
    for name, weight in model.named_parameters():
        if ADDED.isdisjoint(name.split(".")):
            weight.requires_grad_(False)
    for projection in projections:
        update = LowRank(projection.weight, rank)
        parametrize.register_parametrization(projection, "weight", update)


def merge_updates(model: nn.Module) -> None:
    """Adds the updates to the weights, which gives a model without updates and the same outputs."""
    for attention in _attentions(model):
        for name in PROJECTIONS:
            projection = getattr(attention, name)
            if parametrize.is_parametrized(projection, "weight"):
                setattr(attention, name, _merged(projection))


def fit_updates(
    trained: dict[str, Tensor], own: Mapping[str, Tensor], prefix: str = ""
) -> dict[str, Tensor]:
    """Makes the weights of a checkpoint those of a model with updates, or of one without.

    Updates that the model does not have are added to their weights.

    trained: of the checkpoint, changed in place; own: of the model, with the same names
    prefix: of the names of the weights that are changed

    Returns the model's updates that the checkpoint lacks.
    """
    theirs, ours = _stems(trained, prefix), _stems(own, prefix)
    for stem in theirs - ours:
        weight, up, down = (trained.pop(stem + part) for part in (ORIGINAL, UP, DOWN))
        trained[f"{stem}weight"] = weight + up @ down
    new = [stem for stem in ours - theirs if f"{stem}weight" in trained]
    for stem in new:
        trained[stem + ORIGINAL] = trained.pop(f"{stem}weight")
    return {stem + part: own[stem + part] for stem in new for part in (UP, DOWN)}


def _attentions(model: nn.Module) -> list[ABCAttention]:
    return [module for module in model.modules() if isinstance(module, ABCAttention)]


def _merged(projection: nn.Linear) -> nn.Linear:
    # torch's own function, remove_parametrizations, would break the copies of the model.
    sizes = projection.in_features, projection.out_features
    plain = nn.Linear(*sizes, bias=False, device="meta")
    plain.weight = nn.Parameter(projection.weight.detach(), requires_grad=False)
    plain.bias = projection.bias
    return plain


def _check(rank: int, projections: list[nn.Linear], args: Any) -> None:
    for name in REFUSED:
        if getattr(args, name, None):
            raise MemAttnError(f"--abc-low-rank must be 0 with {flag(name)}, but is {rank}")
    if not projections:
        raise MemAttnError(
            f"--abc-low-rank must be 0 in a model without bounded memories, but is {rank}"
        )


def _stems(weights: Mapping[str, Tensor], prefix: str) -> set[str]:
    """The names of the projections that have updates, with a dot at the end."""
    return {
        name.removesuffix(ORIGINAL)
        for name in weights
        if name.startswith(prefix) and name.endswith(ORIGINAL)
    }
