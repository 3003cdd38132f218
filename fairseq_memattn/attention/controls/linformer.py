"""Linformer (ABC paper, section 3.1): a learned control vector for each position."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.controls.base import PositionControl
from fairseq_memattn.attention.controls.options import ControlOptions, Sizes, option
from fairseq_memattn.attention.controls.registry import register_control


@dataclass(frozen=True)
class LengthOptions(ControlOptions):
    max_length: int = option(
        0,
        "the longest sequence that the control supports; 0 is the model's maximum of positions",
        at_least=0,
    )

    def of(self, sizes: Sizes) -> int:
        """The longest sequence, with its default."""
        return self.max_length or sizes.max_positions


@register_control("linformer")
class LinformerControl(PositionControl):
    """phi_t = W^LF[:, t], column t of a learned matrix, causal like any other control.

    W^LF projects keys and values alike, as in equation 6. A column begins with 1 for a random slot
    and small values for the others (our choice): a slot then begins with few tokens. With small
    values alone every slot would begin with a random mixture of all tokens.
    """

    Options = LengthOptions

    def __init__(self, sizes: Sizes, options: LengthOptions) -> None:
        super().__init__(sizes, options)
        length = options.of(sizes)
        self.max_length = length
        self.weight = nn.Parameter(torch.empty(length, self.heads, self.slots))
        nn.init.normal_(self.weight, std=0.02)
        with torch.no_grad():
            slots = torch.randint(sizes.slots, (length, self.heads, 1))
            self.weight.scatter_(2, slots, 1.0)

    def phi(self, positions: Tensor) -> Tensor:
        return self.weight[positions].transpose(1, 2)
