"""Random slots (ABC paper, appendix A.2), a baseline."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fairseq_memattn.attention.controls.base import ControlOptions, PositionControl

PERIOD = 1 << 16


class RandomControl(PositionControl):
    """phi_t = e_i with i drawn from the slots, for every head and position anew.

    The draws are a table made from a seed, so that training, decoding and every beam agree, and a
    checkpoint holds it. It repeats itself after 65,536 positions.
    """

    table: Tensor

    def __init__(self, options: ControlOptions) -> None:
        super().__init__(options)
        generator = torch.Generator().manual_seed(options.seed)
        table = torch.randint(self.slots, (PERIOD, self.heads), generator=generator)
        self.register_buffer("table", table.to(torch.int32))

    def phi(self, positions: Tensor) -> Tensor:
        slots = self.table[positions % PERIOD].transpose(1, 2)
        return one_hot(slots.long(), self.slots).float()
