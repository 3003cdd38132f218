"""Mean pooling of neighbours (ABC paper, appendix A.3), after the compressive transformer."""

from typing import ClassVar

from torch import Tensor
from torch.nn.functional import one_hot

from fairseq_memattn.attention.controls.base import PositionControl
from fairseq_memattn.attention.controls.linformer import LengthOptions
from fairseq_memattn.attention.controls.options import Sizes
from fairseq_memattn.attention.controls.registry import register_control


@register_control("compressive")
class CompressiveControl(PositionControl):
    """phi_t = e_(t div c) / c (equation 14), with the least c for which `max_length` tokens fit.

    The paper sets c = N / n for a sequence of N tokens, which causal attention does not know.
    Here c follows from the declared maximum (our choice). As in the equation, the sum over fewer
    than c tokens in the slot that is being filled is divided by c.
    """

    Options = LengthOptions
    uses_heads: ClassVar[bool] = False

    def __init__(self, sizes: Sizes, options: LengthOptions) -> None:
        super().__init__(sizes, options)
        self.heads = 1
        self.max_length = options.of(sizes)
        self.ratio = -(-self.max_length // self.slots)

    def phi(self, positions: Tensor) -> Tensor:
        slots = positions.div(self.ratio, rounding_mode="floor")
        return one_hot(slots, self.slots).unsqueeze(1).float() / self.ratio
