"""Local-to-global attention (ABC paper, appendix A.1): everybody sees a few chosen tokens."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fairseq_memattn.attention.controls.base import ControlOptions, PositionControl


class GlobalControl(PositionControl):
    """phi_t = e_i if t is the i-th global token, and 0 for others.

    Global are the listed `positions`, or, where none are listed, every `stride`-th token from the
    first, of as many as there are slots; a longer sequence than those cover is refused.
    """

    places: Tensor

    def __init__(self, options: ControlOptions) -> None:
        super().__init__(options)
        self.heads = 1
        positions = options.positions or tuple(
            range(0, self.slots * options.stride, options.stride)
        )
        if len(positions) > self.slots:
            raise ValueError(
                f"`positions` has {len(positions)} global tokens, more than the {self.slots} "
                "`slots`"
            )
        if not options.positions:
            self.max_length = self.slots * options.stride
        # slot of each position, and one past the slots for those that are not global
        places = torch.full((max(positions) + 2,), self.slots)
        places[list(positions)] = torch.arange(len(positions))
        self.register_buffer("places", places, persistent=False)

    def slots_of(self, positions: Tensor) -> Tensor:
        """The slot of each position, and one past the slots where it is not global."""
        self.check_limit(positions)
        return self.places[positions.clamp(min=0, max=len(self.places) - 1)]

    def phi(self, positions: Tensor) -> Tensor:
        slots = one_hot(self.slots_of(positions), self.slots + 1)[..., : self.slots]
        return slots.unsqueeze(1).float()
