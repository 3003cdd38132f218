"""`attention.nn.ABCAttention` whose control is owned by the stack of layers."""

from typing import Any

from torch import Tensor

from fairseq_memattn.attention.controls.base import Control, Tokens
from fairseq_memattn.attention.nn.abc import BoundedAttention
from fairseq_memattn.attention.nn.control_pool import LayerControl


class MemoryAttention(BoundedAttention):
    """Attention to a bounded memory; the `ControlPool` of the stack has its control.

    Sequences are (B, T, E); padding is (B, S), True at padding, on either side.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        control: LayerControl,
        *,
        causal: bool,
        source_dim: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, causal=causal, source_dim=source_dim, dropout=dropout
        )
        self.layer_control = control

    @property
    def control(self) -> Control:  # type: ignore[override]
        return self.layer_control.control

    def forward(self, x: Tensor, source: Tensor | None, padding: Tensor | None) -> Tensor:
        """x: (B, T, E); source: (B, S, source_dim), x if None. Returns (B, T, E)."""
        return self.join(self.attend(x, self._tokens(x if source is None else source, padding)))

    def step(self, x: Tensor, state: Any, padding: Tensor | None) -> tuple[Tensor, Any]:
        """Continues causal attention with T positions: (B, T, E) and the state after them."""
        q, k, v = self.project(x, x)
        heads, state = self.control.step(q, k, v, self._tokens(x, padding), state)
        return self.join(heads), state

    def write(self, source: Tensor, padding: Tensor | None) -> Any:
        """The memory of a source, for `read`."""
        return self.write_memory(self._tokens(source, padding))

    def read(self, x: Tensor, memory: Any) -> Tensor:
        """Attention of x (B, T, E) to a memory that `write` returned."""
        return self.join(self.control.read(self.split(self.q_proj(x)), memory))

    def _tokens(self, x: Tensor, padding: Tensor | None) -> Tokens:
        return Tokens(x, padding, self.layer_control.shared)
