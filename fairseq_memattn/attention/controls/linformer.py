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

    W^LF projects keys and values alike, as in equation 6. Its entries begin with variance
    1 / max_length (our choice): a memory of unit-variance keys then begins with variance below 1.
    """

    Options = LengthOptions

    def __init__(self, sizes: Sizes, options: LengthOptions) -> None:
        super().__init__(sizes, options)
        length = options.of(sizes)
        self.max_length = length
        self.weight = nn.Parameter(torch.empty(length, self.heads, self.slots))
        nn.init.normal_(self.weight, std=length**-0.5)

    def phi(self, positions: Tensor) -> Tensor:
        return self.weight[positions].transpose(1, 2)
