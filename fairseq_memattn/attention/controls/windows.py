"""Sliding, dilated and strided windows (ABC paper, section 3.3 and appendix A.4)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fairseq_memattn.attention.controls.base import Control, Tokens, unit_values, units_of
from fairseq_memattn.attention.controls.options import ControlOptions, Sizes, option
from fairseq_memattn.attention.controls.registry import register_control
from fairseq_memattn.attention.ops.window import (
    Window,
    WindowState,
    window_attention,
    window_read,
    window_step,
    window_write,
)


@dataclass(frozen=True)
class StrideOptions(ControlOptions):
    stride: int = option(2, "the distance between the tokens of the window", at_least=1)


@register_control("window")
class WindowControl(Control):
    """phi_t = e_n and K~_t = U K~_{t-1} + e_n (x) k_t: a queue of the last n tokens.

    Causal attention reads the queue at each token. Encoder attention sees the n tokens around each
    query. Cross attention reads the queue after the last token of the source, and so only the last
    n tokens, as the recurrence says. Dropout applies to the attention weights, as in softmax
    attention.
    """

    state_class: ClassVar[type | None] = WindowState
    uses_heads: ClassVar[bool] = False
    can_centre: ClassVar[bool] = True

    def __init__(self, sizes: Sizes, options: ControlOptions) -> None:
        super().__init__(sizes, options)
        self.window = Window(sizes.slots)

    @property
    def state_slots(self) -> int:
        return self.window.capacity

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, *, causal: bool, dropout: float = 0.0
    ) -> Tensor:
        if not causal and not self.is_centred:
            state = window_write(k, v, self.window, tokens.key_padding_mask)
            return window_read(q, state, self.window, dropout=dropout)
        return window_attention(
            *(q, k, v, self.window),
            causal=causal,
            key_padding_mask=tokens.key_padding_mask,
            dropout=dropout,
        )

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, state: Any
    ) -> tuple[Tensor, Any]:
        return window_step(q, k, v, self.window, state, key_padding_mask=tokens.key_padding_mask)

    def write(self, k: Tensor, v: Tensor, tokens: Tokens) -> Any:
        return window_write(k, v, self.window, tokens.key_padding_mask)

    def read(self, q: Tensor, state: WindowState) -> Tensor:
        return window_read(q, state, self.window)

    def vectors(self, k: Tensor, tokens: Tokens) -> Tensor:
        """phi of the queue after the last token: e_m for the token in its m-th place."""
        units = units_of(k)
        state = window_write(units, units, self.window, tokens.key_padding_mask)
        return state.keys.transpose(2, 3)

    def weights(self, q: Tensor, state: WindowState) -> Tensor:
        size = state.keys.shape[2]
        pieces = [
            self.read(q, state._replace(values=units)) for units in unit_values(size, state.values)
        ]
        return torch.cat(pieces, dim=3)[..., :size] * (state.tokens > 0)[:, None, None, None]


@register_control("dilated")
class DilatedControl(WindowControl):
    """Every `stride`-th token of a window that is `stride` times as long (equation 15)."""

    Options = StrideOptions

    def __init__(self, sizes: Sizes, options: StrideOptions) -> None:
        super().__init__(sizes, options)
        self.window = Window(sizes.slots, dilation=options.stride)


@register_control("strided")
class StridedControl(WindowControl):
    """A queue that takes only every `stride`-th token, beginning with the first."""

    Options = StrideOptions

    def __init__(self, sizes: Sizes, options: StrideOptions) -> None:
        super().__init__(sizes, options)
        self.window = Window(sizes.slots, stride=options.stride)
