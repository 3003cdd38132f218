"""Global tokens together with a sliding window (ABC paper, appendix A.1), as in Longformer."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from fairseq_memattn.attention.controls.base import Control, Tokens, positions_of, units_of
from fairseq_memattn.attention.controls.global_tokens import GlobalControl, GlobalOptions
from fairseq_memattn.attention.controls.options import OptionError, Sizes, option
from fairseq_memattn.attention.controls.registry import register_control
from fairseq_memattn.attention.ops.common import unless_padding
from fairseq_memattn.attention.ops.heads import grouped_attention
from fairseq_memattn.attention.ops.window import Window, window_attention, window_write


class LocalGlobalState(NamedTuple):
    """A slot for each global token, and after them the queue of the window, oldest first.

    keys, values: (B, H, M, D), zeros where nothing was written
    seen: (B, M), False where nothing was, and in the queue where a global token is, which has a
        slot of its own
    position: (B,), tokens so far
    """

    keys: Tensor
    values: Tensor
    seen: Tensor
    position: Tensor

    def reorder(self, new_order: Tensor) -> "LocalGlobalState":
        """new_order: (B',) indices into the batch axis."""
        return type(self)(*(tensor.index_select(0, new_order) for tensor in self))


@dataclass(frozen=True)
class LocalGlobalOptions(GlobalOptions):
    local_window: int = option(
        0,
        "the slots of the last tokens; the other slots are for global tokens; 0 is half of them",
        at_least=0,
    )

    def local(self, slots: int) -> int:
        """The slots of the window, with their default."""
        return self.local_window or slots // 2

    def check(self, sizes: Sizes) -> None:
        local = self.local(sizes.slots)
        if not 0 < local < sizes.slots:
            raise OptionError(
                "local_window",
                f"must be from 1 to {sizes.slots - 1}, to leave some of the {sizes.slots} slots "
                f"to global tokens, but is {local}",
            )
        self.check_positions(sizes.slots - local)


@register_control("local_global")
class LocalGlobalControl(Control):
    """A window of the last `local_window` tokens, and global tokens in the remaining slots.

    One softmax runs over both; a global token within the window counts once. All queries see the
    global tokens. As in the paper, and unlike in Longformer, the queries of global tokens see no
    more than others. Encoder attention, cross attention and dropout are as in `WindowControl`.
    """

    Options = LocalGlobalOptions
    state_class: ClassVar[type | None] = LocalGlobalState
    uses_heads: ClassVar[bool] = False
    can_centre: ClassVar[bool] = True

    def __init__(self, sizes: Sizes, options: LocalGlobalOptions) -> None:
        super().__init__(sizes, options)
        local = options.local(self.slots)
        self.window = Window(local)
        of_tokens = GlobalOptions(options.stride, options.global_positions)
        self.tokens = GlobalControl(replace(sizes, slots=self.slots - local), of_tokens)
        self.max_length = self.tokens.max_length

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, *, causal: bool, dropout: float = 0.0
    ) -> Tensor:
        if not causal and not self.is_centred:
            return _read(q, self.write(k, v, tokens), dropout)
        return window_attention(
            *(q, k, v, self.window),
            causal=causal,
            key_padding_mask=tokens.key_padding_mask,
            global_mask=self.tokens.vectors(k, tokens).any(dim=3).squeeze(1),
            max_global=self.tokens.slots,
            dropout=dropout,
        )

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, state: Any
    ) -> tuple[Tensor, Any]:
        mask, from_start = tokens.key_padding_mask, state is None
        if state is None:
            state = self._empty(k, v)
        positions = positions_of(k, mask, state.position)
        self.tokens.check_limit(positions, from_start)
        chosen = self.tokens.is_in_slot(positions)
        outputs = []
        for t in range(q.shape[2]):
            after = self._push(state, k[:, :, t], v[:, :, t], chosen[:, t])
            if mask is not None:
                after = unless_padding(mask[:, t], after, state)
            state = after
            outputs.append(_read(q[:, :, t : t + 1], state))
        return torch.cat(outputs, dim=2), state

    def write(self, k: Tensor, v: Tensor, tokens: Tokens) -> Any:
        phi = self.tokens.vectors(k, tokens)
        mask = tokens.key_padding_mask
        queue = window_write(k, v, self.window, mask)
        is_global = phi.any(dim=3, keepdim=True).to(k.dtype)
        hidden = window_write(is_global, is_global, self.window, mask).keys
        places = torch.arange(self.window.slots, device=k.device)
        filled = places >= self.window.slots - queue.tokens.unsqueeze(1)
        write = phi.transpose(2, 3).to(k.dtype)
        return LocalGlobalState(
            torch.cat([write @ k, queue.keys], dim=2),
            torch.cat([write @ v, queue.values], dim=2),
            torch.cat([phi.any(dim=2).squeeze(1), filled & (hidden[:, 0, :, 0] == 0)], dim=1),
            queue.tokens,
        )

    def read(self, q: Tensor, state: LocalGlobalState) -> Tensor:
        return _read(q, state)

    def vectors(self, k: Tensor, tokens: Tokens) -> Tensor:
        """phi of the memory after the last token: e_m for the token in slot m."""
        units = units_of(k)
        keys: Tensor = self.write(units, units, tokens).keys
        return keys.transpose(2, 3)

    def weights(self, q: Tensor, state: LocalGlobalState) -> Tensor:
        units = units_of(state.values)
        return _read(q, state._replace(values=units)) * state.seen[:, None, None]

    def _empty(self, k: Tensor, v: Tensor) -> LocalGlobalState:
        batch, heads, _, width = k.shape
        return LocalGlobalState(
            k.new_zeros(batch, heads, self.slots, width),
            v.new_zeros(batch, heads, self.slots, width),
            torch.zeros(batch, self.slots, dtype=torch.bool, device=k.device),
            torch.zeros(batch, dtype=torch.long, device=k.device),
        )

    def _push(
        self, state: LocalGlobalState, k: Tensor, v: Tensor, chosen: Tensor
    ) -> LocalGlobalState:
        """The state after one token of every row: k, v (B, H, D), and its global slot (B, M)."""
        count = self.tokens.slots

        def pushed(memory: Tensor, token: Tensor) -> Tensor:
            token = token.unsqueeze(2)
            kept = torch.where(chosen[:, None, :, None], token, memory[:, :, :count])
            return torch.cat([kept, memory[:, :, count + 1 :], token], dim=2)

        is_local = ~chosen.any(dim=1, keepdim=True)
        seen = [state.seen[:, :count] | chosen, state.seen[:, count + 1 :], is_local]
        return LocalGlobalState(
            pushed(state.keys, k),
            pushed(state.values, v),
            torch.cat(seen, dim=1),
            state.position + 1,
        )


def _read(q: Tensor, state: LocalGlobalState, dropout: float = 0.0) -> Tensor:
    # Where nothing at all was written the weights are even, over values that are zero.
    seen = state.seen | ~state.seen.any(dim=1, keepdim=True)
    out = grouped_attention(q, state.keys, state.values, seen[:, None, None], dropout, None)
    return out.to(q.dtype)
