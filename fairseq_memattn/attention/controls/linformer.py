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


@dataclass(frozen=True)
class LinformerOptions(LengthOptions):
    linformer_init: str = option(
        "slots",
        "how the matrix of Linformer begins: as in Linformer's own code (paper), or with a random "
        "slot for each position (slots)",
        choices=("paper", "slots"),
    )


@register_control("linformer")
class LinformerControl(PositionControl):
    """phi_t = W^LF[:, t], column t of a learned matrix, causal like any other control.

    W^LF projects keys and values alike, as in equation 6. The ABC paper does not say how it begins.
    Wang et al.'s code in fairseq draws W^LF as it draws the projections: from Xavier's uniform
    distribution, with a gain of 2 ** -0.5 (`linformer_init="paper"`). Every slot then begins with
    a random mixture of all tokens. With "slots" (our choice), a column begins with 1 for a random
    slot and small values for the others, and a slot with few tokens.
    """

    Options = LinformerOptions

    def __init__(self, sizes: Sizes, options: LinformerOptions) -> None:
        super().__init__(sizes, options)
        length = options.of(sizes)
        self.max_length = length
        self.weight = nn.Parameter(torch.empty(length, self.heads, self.slots))
        if options.linformer_init == "paper":
            bound = (3 / (length + self.slots)) ** 0.5
            nn.init.uniform_(self.weight, -bound, bound)
            return
        nn.init.normal_(self.weight, std=0.02)
        with torch.no_grad():
            slots = torch.randint(sizes.slots, (length, self.heads, 1))
            self.weight.scatter_(2, slots, 1.0)

    def phi(self, positions: Tensor) -> Tensor:
        return self.weight[positions].transpose(1, 2)
