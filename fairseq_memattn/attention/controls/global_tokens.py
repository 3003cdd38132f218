"""Local-to-global attention (ABC paper, appendix A.1): a few tokens that every query sees."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fairseq_memattn.attention.controls.base import PositionControl
from fairseq_memattn.attention.controls.options import ControlOptions, OptionError, Sizes, option
from fairseq_memattn.attention.controls.registry import register_control
from fairseq_memattn.attention.ops.common import constant


@dataclass(frozen=True)
class GlobalOptions(ControlOptions):
    flag_defaults: ClassVar[Mapping[str, Any]] = {"stride": 0}

    stride: int = option(
        2,
        "the distance between global tokens, of which there are as many as slots; 0 is the least "
        "that covers the model's maximum of positions",
        at_least=0,
    )
    global_positions: tuple[int, ...] = option(
        (), "positions of the global tokens, from 0, in the place of every stride-th position"
    )

    def check(self, sizes: Sizes) -> None:
        super().check(sizes)
        self.check_positions(sizes.slots)

    def check_positions(self, slots: int) -> None:
        """Raises OptionError for negative or repeated positions, and for more than the slots."""
        listed = self.global_positions
        if min(listed, default=0) < 0 or len(set(listed)) < len(listed):
            raise OptionError(
                "global_positions", f"must be different positions from 0, but are {listed}"
            )
        if len(listed) > slots:
            raise OptionError(
                "global_positions",
                f"must name at most {slots} tokens, one for each slot that is left for them, "
                f"but names {len(listed)}",
            )


@register_control("global")
class GlobalControl(PositionControl):
    """phi_t = e_i if t is the i-th global token, else 0.

    The global tokens are those at the listed positions. Without a list they are every stride-th
    token from the first, one for each slot; a sequence that these do not cover is refused.
    """

    Options = GlobalOptions
    uses_heads: ClassVar[bool] = False
    adds_tokens: ClassVar[bool] = False

    def __init__(self, sizes: Sizes, options: GlobalOptions) -> None:
        super().__init__(sizes, options)
        self.heads = 1
        stride = options.stride or -(-sizes.max_positions // sizes.slots)
        every = range(0, self.slots * stride, stride)
        listed = sorted(options.global_positions)
        # Slots without a token have a position that no token has.
        self.positions = (*listed, *[-2] * (self.slots - len(listed))) if listed else tuple(every)
        if not options.global_positions:
            self.max_length = self.slots * stride

    def check_limit(self, positions: Tensor, from_start: bool) -> None:
        """Raises ValueError for a sequence that is longer than its global tokens cover."""
        try:
            super().check_limit(positions, from_start)
        except ValueError:
            raise ValueError(
                f"{self.slots} global tokens, one every {(self.max_length or 0) // self.slots}, "
                f"cover sequences of up to {self.max_length} tokens (slots times `stride`), but "
                f"there are {int(positions.max()) + 1}; raise `slots` or `stride`, or list "
                "`global_positions`"
            ) from None

    def extra_repr(self) -> str:
        covered = f", max_length={self.max_length}" if self.max_length else ""
        return f"{super().extra_repr()}{covered}"

    def is_in_slot(self, positions: Tensor) -> Tensor:
        """(B, S, M), whether a position (B, S) is that of the slot's token."""
        return positions.unsqueeze(2) == constant(self.positions, torch.long, positions.device)

    def phi(self, positions: Tensor) -> Tensor:
        return self.is_in_slot(positions).unsqueeze(1).float()
