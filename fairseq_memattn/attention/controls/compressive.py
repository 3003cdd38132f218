"""Mean pooling of neighbours (ABC paper, appendix A.3), after the compressive transformer."""

from torch import Tensor
from torch.nn.functional import one_hot

from fairseq_memattn.attention.controls.base import ControlOptions, PositionControl


class CompressiveControl(PositionControl):
    """phi_t = e_(t div c) / c (equation 14), with c so large that `max_length` tokens fit.

    The paper takes c = N / n from the length N of the sequence, which no causal attention knows;
    here it comes from the declared maximum. The slot being filled holds a sum over fewer than c
    tokens, divided by c all the same, as the equation has it.
    """

    def __init__(self, options: ControlOptions) -> None:
        super().__init__(options)
        self.heads = 1
        self.ratio = -(-options.max_length // self.slots)
        self.max_length = options.max_length

    def phi(self, positions: Tensor) -> Tensor:
        slots = positions.div(self.ratio, rounding_mode="floor")
        return one_hot(slots, self.slots).unsqueeze(1).float() / self.ratio
