"""First tokens and a window, exact, alone or with learned slots of what has left the window."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.controls.base import Control, Tokens, drop_writes, units_of
from fairseq_memattn.attention.controls.options import ControlOptions, OptionError, Sizes, option
from fairseq_memattn.attention.controls.registry import register_control
from fairseq_memattn.attention.ops.common import accumulation_dtype, full_precision
from fairseq_memattn.attention.ops.rotary import Rotation
from fairseq_memattn.attention.ops.spill import (
    Places,
    Slots,
    SpillState,
    spill_attention,
    spill_read,
    spill_step,
    spill_write,
)


@dataclass(frozen=True)
class SinkOptions(ControlOptions):
    sink_tokens: int = option(
        -1,
        "the slots of the first tokens, which every query sees; -1 is 4, or a quarter of the "
        "slots where there are fewer than 16",
        at_least=-1,
    )

    def places(self, slots: int) -> Places:
        """What the slots are for."""
        first = min(4, slots // 4) if self.sink_tokens < 0 else self.sink_tokens
        return Places(first, slots - first, 0)

    def check(self, sizes: Sizes) -> None:
        places = self.places(sizes.slots)
        if places.window < 1:
            raise OptionError(
                "sink_tokens", f"must be below the {sizes.slots} slots, but is {places.first}"
            )


@register_control("sinks")
class SinkControl(Control):
    """The first tokens and a window of the last ones, under one softmax.

    Xiao et al. ("Efficient Streaming Language Models with Attention Sinks", 2024): the softmax
    attention of pretrained models rests on the first tokens. The baseline of every conversion to a
    bounded memory. Encoder and cross attention and dropout are as in `WindowControl`. Rotary
    positions are those of the text, where theirs count the places in the memory.
    """

    Options: ClassVar[type[ControlOptions]] = SinkOptions
    state_class: ClassVar[type | None] = SpillState
    uses_heads: ClassVar[bool] = False
    can_centre: ClassVar[bool] = True
    rotates: ClassVar[bool] = True
    can_carry: ClassVar[bool] = True
    bias: nn.Parameter | None  # of the learned slots

    def __init__(self, sizes: Sizes, options: SinkOptions) -> None:
        super().__init__(sizes, options)
        self.places = options.places(sizes.slots)
        self.reads_source = sizes.kind == "cross"
        self.gate_sizes = (sizes.attention_heads, self.places.slots)
        self.bias = None

    @property
    def state_slots(self) -> int:
        return self.places.first + self.places.window

    def learned(self, dropout: float = 0.0) -> Slots:
        """dropout: probability to omit a write"""

        def write_logits(k: Tensor) -> Tensor:
            return drop_writes(self.log_alpha(k), dropout, -torch.inf)

        return Slots(write_logits, self.bias)

    def log_alpha(self, k: Tensor) -> Tensor:
        """(B, G, S, learned slots) of keys (B, G, S, D) that are not turned."""
        return k.new_empty(*k.shape[:3], 0, dtype=accumulation_dtype(k))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, *, causal: bool, dropout: float = 0.0
    ) -> Tensor:
        learned = self.learned(dropout)
        if not causal and not self.is_centred:
            state = self._written(k, v, learned.write_logits(k), tokens)
            return spill_read(q, state, self.places, learned, dropout=dropout)
        return spill_attention(
            *(q, k, v, self.places, learned),
            causal=causal,
            rotation=tokens.rotation,
            key_padding_mask=tokens.key_padding_mask,
            dropout=dropout,
        )

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, state: Any
    ) -> tuple[Tensor, Any]:
        return spill_step(
            *(q, k, v, self.places, self.learned(), state),
            rotation=tokens.rotation,
            key_padding_mask=tokens.key_padding_mask,
        )

    def write(self, k: Tensor, v: Tensor, tokens: Tokens) -> Any:
        return self._written(k, v, self.log_alpha(k), tokens)

    def _written(self, k: Tensor, v: Tensor, log_alpha: Tensor, tokens: Tokens) -> SpillState:
        mask = tokens.key_padding_mask
        return spill_write(k, v, self.places, log_alpha, mask, in_parts=self.reads_source)

    def read(self, q: Tensor, state: SpillState, rotation: Rotation | None = None) -> Tensor:
        return spill_read(q, state, self.places, self.learned(), rotation=rotation)

    def vectors(self, k: Tensor, tokens: Tokens) -> Tensor:
        """phi of the memory after the last token, first tokens and window before learned slots."""
        units = units_of(k)
        state = self._written(units, units, self.log_alpha(k), tokens)
        return state.values.transpose(2, 3)

    def weights(self, q: Tensor, state: SpillState, rotation: Rotation | None = None) -> Tensor:
        units = units_of(state.values)
        exact, slots = units.split([self.state_slots, self.places.slots], dim=2)
        state = state._replace(exact_values=exact, slot_values=slots)
        weights = self.read(q.to(units.dtype), state, rotation)
        return weights * (state.tokens > 0)[:, None, None, None]

    def extra_repr(self) -> str:
        first, window, slots = self.places
        return f"first={first}, window={window}, slots={slots}"


@dataclass(frozen=True)
class LocalMLPOptions(SinkOptions):
    local_window: int = option(
        0,
        "the slots of the last tokens; the learned slots are the rest without those of the first "
        "tokens; 0 is as many as learned slots",
        at_least=0,
    )

    slot_bias: float = option(
        0.0,
        "the first value of a learned number that is added to the read logits of the learned "
        "slots, except in cross attention; -2 where they join a trained model",
        at_least=-100,
    )

    def places(self, slots: int) -> Places:
        first, rest, _ = super().places(slots)
        window = self.local_window or rest // 2
        return Places(first, window, rest - window)

    def check(self, sizes: Sizes) -> None:
        super().check(sizes)
        places = self.places(sizes.slots)
        if places.window < 1 or places.slots < 1:
            raise OptionError(
                "local_window",
                f"must leave some of the {sizes.slots} slots beside {places.first} first tokens to "
                f"learned slots, but is {places.window}",
            )


@register_control("local_mlp")
class LocalMLPControl(SinkControl):
    """First tokens and a window, and learned slots of what has left the window, under one softmax.

    `fairseq_memattn.attention.ops.spill` has the definition. alpha = exp(W_phi k), with a W_phi for
    each head of keys and the keys before rotary positions, which apply to exact tokens alone: the
    window holds keys and values, and not the x of ABC-MLP. In encoder attention, whose window is
    around each query, the learned slots hold all tokens but the first ones. Cross attention reads
    the memory of the whole source, in which each learned slot holds a part of the tokens that are
    not exact: a source of no more tokens than slots is exact. Dropout omits weights of exact tokens
    and writes into learned slots. A learned number for each head of keys, `slot_bias` at first, is
    added to the read logits of learned slots, except in cross attention.
    """

    Options = LocalMLPOptions
    can_tie: ClassVar[bool] = False  # layers have different keys

    def __init__(self, sizes: Sizes, options: LocalMLPOptions) -> None:
        super().__init__(sizes, options)
        heads, width = sizes.attention_heads, sizes.head_dim
        self.weight = nn.Parameter(torch.empty(heads, self.places.slots, width))
        # Write logits are as large as those of `MLPControl`.
        nn.init.normal_(self.weight, std=4 * max(width, 1) ** -0.5)
        if not self.reads_source:
            self.bias = nn.Parameter(torch.full((heads,), options.slot_bias))

    @full_precision
    def log_alpha(self, k: Tensor) -> Tensor:
        dtype = accumulation_dtype(k)
        return k.to(dtype) @ self.weight.to(dtype).transpose(1, 2)
