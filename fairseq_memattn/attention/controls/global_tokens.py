"""Local-to-global attention (ABC paper, appendix A.1): a few tokens that every query sees."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fairseq_memattn.attention.controls.base import PositionControl
from fairseq_memattn.attention.controls.options import ControlOptions, OptionError, Sizes, option
from fairseq_memattn.attention.controls.registry import register_control


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

    def stride_of(self, sizes: Sizes) -> int:
        """The stride, with its default."""
        return self.stride or -(-sizes.max_positions // sizes.slots)

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
    places: Tensor

    def __init__(self, sizes: Sizes, options: GlobalOptions) -> None:
        super().__init__(sizes, options)
        self.heads = 1
        stride = options.stride_of(sizes)
        every = range(0, self.slots * stride, stride)
        self.positions = tuple(sorted(options.global_positions)) or tuple(every)
        if not options.global_positions:
            self.max_length = self.slots * stride
        places = self.table().to(torch.get_default_device())
        self.register_buffer("places", places, persistent=False)

    def _load_from_state_dict(self, state_dict: dict[str, Any], *args: Any) -> None:
        """Fills the table, which no checkpoint holds, after deferred initialisation."""
        super()._load_from_state_dict(state_dict, *args)
        if self.places.is_meta:
            loaded = (x.device for x in state_dict.values() if isinstance(x, Tensor))
            self.places = self.table().to(next(loaded, "cpu"))
        else:
            self.places.copy_(self.table())

    def table(self) -> Tensor:
        """The slot of each position; one past the slots for positions that are not global."""
        places = torch.full((max(self.positions) + 2,), self.slots, device="cpu")
        places[list(self.positions)] = torch.arange(len(self.positions), device="cpu")
        return places

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

    def slots_of(self, positions: Tensor) -> Tensor:
        """The slot of each position, and one past the slots where it is not global."""
        return self.places[positions.clamp(min=0, max=len(self.places) - 1)]

    def phi(self, positions: Tensor) -> Tensor:
        slots = one_hot(self.slots_of(positions), self.slots + 1)[..., : self.slots]
        return slots.unsqueeze(1).float()
