"""Low-rank updates of trained projections: `--abc-low-rank`."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from fairseq_memattn.attention.nn.low_rank import give_updates, projections_of
from fairseq_memattn.errors import MemAttnError, flag

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


def add_updates(model: nn.Module, args: Any) -> None:
    """Gives the projections of bounded attentions updates, and freezes the trained weights.

    args: the model's options, of which abc_low_rank is the rank R; 0 changes nothing

    Raises MemAttnError for a model without bounded attentions, and for options that do not work
    with updates.
    """
    rank = getattr(args, "abc_low_rank", 0)
    if not rank:
        return
    projections = projections_of(model)
    _check(rank, projections, args)
    for name, weight in model.named_parameters():
        if ADDED.isdisjoint(name.split(".")):
            weight.requires_grad_(False)
    give_updates(projections, rank)


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
