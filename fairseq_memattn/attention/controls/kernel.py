"""Kernel attention in the place of a control, for comparison (ABC paper, table 2b)."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor, nn

from fairseq_memattn.attention.controls.base import Control, Tokens, drop_writes, units_of
from fairseq_memattn.attention.controls.options import ControlOptions, Sizes
from fairseq_memattn.attention.ops.carry import Carry, before_and_after, merge
from fairseq_memattn.attention.ops.common import omit_padding
from fairseq_memattn.attention.ops.heads import by_key_head, by_query_head
from fairseq_memattn.attention.ops.kernel.chunked import (
    KernelState,
    kernel_attention,
    kernel_read,
    kernel_step,
    kernel_write,
)


class FeatureMap(nn.Module, ABC):
    """phi; phi(q) . phi(k) is the weight of key k for query q before the normalisation.

    feature_size: F, the size of phi(x)
    floor: the `floor` of `kernel_attention` for these features
    """

    feature_size: int
    floor: float = 0.0

    @abstractmethod
    def forward(self, x: Tensor, is_query: bool, draw: Tensor | None = None) -> Tensor:
        """x: queries or keys (B, H, T, D); draw: of `draw`.

        Returns (B, H, T, F) in float32 (float64 for float64): float16 has no small features.
        """

    def draw(self) -> Tensor | None:
        """What is random in the features, drawn anew: once for each forward pass in training.

        The queries and keys of one attention take the same draw. None where nothing is random.
        """
        return None


class KernelControl(Control):
    """Attention whose exponential is an inner product of features, as many as there are slots.

    out = sum_j phi(q) . phi(k_j) v_j / sum_j phi(q) . phi(k_j). Every layer and head has features
    of its own. `vectors` returns phi(k) and `weights` phi(q) divided by its normaliser; their
    products are the weights of the tokens.

    features: phi; gate: g of causal attention (Peng et al., 2021, section 3.2), None for no gate
    """

    state_class: ClassVar[type | None] = KernelState
    can_tie: ClassVar[bool] = False
    uses_heads: ClassVar[bool] = False
    is_kernel: ClassVar[bool] = True
    can_carry: ClassVar[bool] = True

    def __init__(
        self,
        sizes: Sizes,
        options: ControlOptions,
        features: FeatureMap,
        gate: nn.Module | None = None,
    ) -> None:
        super().__init__(sizes, options)
        self.features, self.gate = features, gate
        self.gate_sizes = (sizes.attention_heads, 1)

    @property
    def state_slots(self) -> int:
        return self.features.feature_size

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, *, causal: bool, dropout: float = 0.0
    ) -> Tensor:
        draw = self.features.draw() if self.training else None
        phi_k = self.features(k, is_query=False, draw=draw)
        return kernel_attention(
            self._of_queries(q, k.shape[1], draw),
            drop_writes(phi_k, dropout, 0.0),
            v,
            causal=causal,
            key_padding_mask=tokens.key_padding_mask,
            log_gate=self._log_gate(tokens.x) if causal else None,
            floor=self.features.floor,
        ).to(q.dtype)

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, state: Any
    ) -> tuple[Tensor, Any]:
        out, state = kernel_step(
            self._of_queries(q, k.shape[1]),
            self.features(k, is_query=False),
            v,
            state,
            key_padding_mask=tokens.key_padding_mask,
            log_gate=self._log_gate(tokens.x),
            floor=self.features.floor,
        )
        return out.to(q.dtype), state

    def write(self, k: Tensor, v: Tensor, tokens: Tokens) -> Any:
        return kernel_write(self.features(k, is_query=False), v, tokens.key_padding_mask)

    def extend(self, k: Tensor, v: Tensor, tokens: Tokens, state: Any) -> Any:
        written = self.write(k, v, tokens)
        return written if state is None else merge(state, written)

    def attend_from(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        tokens: Tokens,
        carry: Carry,
        *,
        causal: bool,
        dropout: float = 0.0,
    ) -> tuple[Tensor, Any]:
        """All sentences at once, unless a gate fades the sums within them."""
        if self.gate is not None:
            return super().attend_from(q, k, v, tokens, carry, causal=causal)
        written = self.write(k, v, tokens)
        before, after = before_and_after(written, carry)
        if not causal:
            return self.read(q, merge(before, written)), after
        return self.step(q, k, v, tokens, before)[0], after

    def read(self, q: Tensor, state: KernelState) -> Tensor:
        phi_q = self._of_queries(q, state.values.shape[1])
        return kernel_read(phi_q, state, floor=self.features.floor).to(q.dtype)

    def vectors(self, k: Tensor, tokens: Tokens) -> Tensor:
        phi: Tensor = self.features(k, is_query=False)
        return omit_padding(phi, tokens.key_padding_mask)

    def weights(self, q: Tensor, state: KernelState) -> Tensor:
        return self.read(q, KernelState(units_of(state.values), state.normaliser))

    def _of_queries(self, q: Tensor, heads: int, draw: Tensor | None = None) -> Tensor:
        """phi(q), in which the queries of a group have the features of its keys."""
        phi_q = self.features(by_key_head(q, heads), is_query=True, draw=draw)
        return by_query_head(phi_q, q.shape[1])

    def _log_gate(self, x: Tensor) -> Tensor | None:
        return None if self.gate is None else self.gate(x)
