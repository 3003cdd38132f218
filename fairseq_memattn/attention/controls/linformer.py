"""Linformer (ABC paper, section 3.1): a learned control vector for each position."""

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.controls.base import ControlOptions, PositionControl


class LinformerControl(PositionControl):
    """phi_t = W^LF[:, t], the t-th column of a learned matrix; causal like any other control.

    W^LF projects the keys and the values alike, as in equation 6. Its entries start with variance
    1 / max_length, so that a memory of unit-variance keys starts with variance below 1.
    """

    def __init__(self, options: ControlOptions) -> None:
        super().__init__(options)
        self.max_length = options.max_length
        self.weight = nn.Parameter(torch.empty(options.max_length, self.heads, self.slots))
        nn.init.normal_(self.weight, std=options.max_length**-0.5)

    def phi(self, positions: Tensor) -> Tensor:
        return self.weight[positions].transpose(1, 2)
