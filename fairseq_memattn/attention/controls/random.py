"""Random slots (ABC paper, appendix A.2), a baseline."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fairseq_memattn.attention.controls.base import PositionControl
from fairseq_memattn.attention.controls.options import ControlOptions, Sizes, option
from fairseq_memattn.attention.controls.registry import register_control

PERIOD = 1 << 16


@dataclass(frozen=True)
class RandomOptions(ControlOptions):
    random_seed: int = option(
        1, "seed of the random slots, and of RFA's random features", at_least=0
    )

    def for_layer(self, layer: int) -> "RandomOptions":
        """Layers draw different slots."""
        return replace(self, random_seed=self.random_seed + layer)


@dataclass(frozen=True)
class RandomSlotOptions(RandomOptions):
    random_draw: str = option(
        "position",
        "in training, a random slot for each position (position) or, drawn anew in each forward "
        "pass, for each token (step)",
        choices=("position", "step"),
    )


@register_control("random")
class RandomControl(PositionControl):
    """phi_t = e_i, with i drawn uniformly from the slots for every head and position.

    The draws are a table that a seed determines and a checkpoint holds, so that training,
    decoding and all beams agree. The table repeats after 65,536 positions.

    The paper draws i "at each time step". With `random_draw="step"` so does training: the same
    position has another slot in each sentence, layer and forward pass, and a model cannot learn
    where a position is. Evaluation has the table, so that its results can be repeated and a
    sentence has the same in every batch.
    """

    Options = RandomSlotOptions
    table: Tensor

    def __init__(self, sizes: Sizes, options: RandomSlotOptions) -> None:
        super().__init__(sizes, options)
        self.draws_steps = options.random_draw == "step"
        seed = options.random_seed
        generator = torch.Generator().manual_seed(seed)
        size = (PERIOD, self.heads)
        table = torch.randint(self.slots, size, generator=generator, device="cpu")
        self.register_buffer("table", table.to(torch.get_default_device(), torch.int32))

    def phi(self, positions: Tensor) -> Tensor:
        if self.draws_steps and self.training:
            size = (len(positions), self.heads, positions.shape[1])
            slots = torch.randint(self.slots, size, device=positions.device)
        else:
            slots = self.table[positions % PERIOD].transpose(1, 2)
        return one_hot(slots.long(), self.slots).float()
