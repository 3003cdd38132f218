"""ABC-MLP with a forget gate, which section 4 of the ABC paper suggests and does not try."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from fairseq_memattn.attention.controls.base import Control, FloatLinear, Tokens, drop_writes
from fairseq_memattn.attention.controls.options import ControlOptions, Sizes, option
from fairseq_memattn.attention.controls.registry import register_control
from fairseq_memattn.attention.ops.abc import advance, read_memory
from fairseq_memattn.attention.ops.additive import additive_write
from fairseq_memattn.attention.ops.common import (
    EMPTY,
    MemoryState,
    chosen_backend,
    omit_padding,
    over_tokens,
)
from fairseq_memattn.attention.ops.context_parallel import decays, memory_before

DAMPING = 16.0
BLOCK = 512  # tokens, of which normalisers are summed


@dataclass(frozen=True)
class GatedOptions(ControlOptions):
    gate_horizon: int = option(
        0,
        "spreads the slots' first gates from a memory of one token to one of so many tokens; 0 "
        "begins all slots with about 23 tokens",
        at_least=0,
    )


@register_control("gated")
class GatedControl(Control):
    """K~_t = g_t K~_{t-1} + (1 - g_t) (x) k_t, likewise V~, with g_t = sigmoid(W_phi x_t)^(1/16).

    The recurrence of gated slot attention (Zhang et al., "Gated Slot Attention for Efficient
    Linear-Time Sequence Modeling", 2024), the memory zero at the start. It is ABC-MLP
    whose write logits rise as the memory forgets: with the log normaliser
    z_t = -sum_{j <= t} log g_j, alpha_t = (1 - g_t) exp(z_t) gives phi_t = 1 - g_t, and the
    earlier content keeps the share exp(z_{t-1} - z_t) = g_t. Padding has g = 1.

    Over a whole sequence (cross and encoder attention) it is the memory after the last token.
    """

    Options: ClassVar[type[ControlOptions]] = GatedOptions
    state_class: ClassVar[type | None] = MemoryState
    can_split: ClassVar[bool] = True

    def __init__(self, sizes: Sizes, options: GatedOptions) -> None:
        super().__init__(sizes, options)
        self.proj = FloatLinear(sizes.embed_dim, self.heads * self.slots)
        nn.init.xavier_uniform_(self.proj.weight)
        with torch.no_grad():
            self.proj.bias.copy_(gate_biases(self.slots, options.gate_horizon).repeat(self.heads))

    def log_gate(self, tokens: Tokens, dropout: float = 0.0) -> Tensor:
        """log g (B, heads, S, M), in float32."""
        log_gate = drop_writes(self.gates(tokens.x), dropout, 0.0)
        return omit_padding(log_gate, tokens.key_padding_mask)

    def gates(self, x: Tensor) -> Tensor:
        """log g of x (B, S, E), whatever is padding."""
        return logsigmoid(self.by_head(self.proj(x))) / DAMPING

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, *, causal: bool, dropout: float = 0.0
    ) -> Tensor:
        log_gate = self.log_gate(tokens, dropout)
        if not causal:
            return read_memory(q, self._memory(k, v, log_gate))
        state = None
        if tokens.context_group is not None:
            written = self._memory(k, v, log_gate)._replace(log_mass=log_gate.sum(dim=2))
            state = memory_before(written, tokens.context_group, weigh=decays)
        return self._advance(q, k, v, log_gate, state)[0]

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, state: Any
    ) -> tuple[Tensor, Any]:
        return self._advance(q, k, v, self.log_gate(tokens), state)

    def write(self, k: Tensor, v: Tensor, tokens: Tokens) -> Any:
        return self._memory(k, v, self.log_gate(tokens))

    def _memory(self, k: Tensor, v: Tensor, log_gate: Tensor) -> MemoryState:
        # What follows a token is summed from the end: the sum is small where the token counts.
        after = log_gate.flip(2).cumsum(dim=2).flip(2) - log_gate
        memory = additive_write(k, v, -torch.expm1(log_gate) * after.exp())
        return memory._replace(log_mass=torch.zeros_like(log_gate[:, :, 0]))

    def _advance(
        self, q: Tensor, k: Tensor, v: Tensor, log_gate: Tensor, state: MemoryState | None
    ) -> tuple[Tensor, MemoryState]:
        dtype = q.dtype
        if q.shape[2] > 1 and dtype == torch.bfloat16 and chosen_backend(q, self.slots) == "triton":
            # A gate's gradient sums the rounding of the kernels' products over all later tokens.
            q, k, v = (x.float() for x in (q, k, v))
        if state is None:
            state = MemoryState.empty(k, v, log_gate)
        zero = torch.zeros_like(state.log_mass)
        outs = []
        # Only differences of normalisers matter: from 0 anew, they never grow out of precision,
        # nor do the sums over later tokens in the gradients of gates.
        blocks = (x.split(BLOCK, dim=2) for x in (q, k, v, log_gate))
        for q_, k_, v_, gates in zip(*blocks, strict=True):
            before = state._replace(log_mass=zero)
            out, state = advance(q_, k_, v_, write_logits(gates), before)
            outs.append(out)
        out = outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)
        return out.to(dtype), state._replace(log_mass=zero)

    def vectors(self, k: Tensor, tokens: Tokens) -> Tensor:
        log_alpha = write_logits(self.log_gate(tokens))
        start = torch.zeros_like(log_alpha[:, :, :1])
        return over_tokens(torch.cat([start, log_alpha], dim=2))[:, :, 1:]


def gate_biases(slots: int, horizon: int) -> Tensor:
    """The first biases of the slots (M,), whose contents shrink to 1 / e in 1 to `horizon` tokens.

    The numbers of tokens are a geometric sequence; a horizon of 0 gives zeros.
    """
    if not horizon:
        return torch.zeros(slots)
    tokens = torch.logspace(0.0, math.log10(horizon), slots)
    return -torch.expm1(DAMPING / tokens).log()


def write_logits(log_gate: Tensor) -> Tensor:
    """log alpha of gates (B, h, S, M), for a normaliser of 1 before the first token."""
    forgets = log_gate < 0
    # The inner `where` keeps log's infinite slope at 0 out of the gradient.
    log_rest = torch.log(-torch.expm1(torch.where(forgets, log_gate, -1.0)))
    return (log_rest - log_gate.cumsum(dim=2)).masked_fill(~forgets, EMPTY)
