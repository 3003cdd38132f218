"""What every control strategy is: the decision which slots a token is written into."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.ops.abc import abc_attention, abc_read, abc_step, abc_write
from fairseq_memattn.attention.ops.additive import additive_attention, additive_step, additive_write
from fairseq_memattn.attention.ops.state import MemoryState, is_written


@dataclass(frozen=True)
class ControlOptions:
    """What a strategy may want to know.

    embed_dim: E, the size of the tokens' representations x
    slots: M, the memory slots
    heads: how many controls; 1 where all heads share one
    max_length: positions that a position-bound strategy has to tell apart
    activation: of ABC-MLP's W_phi x: "exp", "sigmoid" or "relu"
    stride: how far apart the tokens of dilated and strided windows, or global tokens, are
    positions: of global tokens, counted from 0
    window: tokens that are seen besides global ones; 0 means half of the slots
    seed: of random slots and random features
    encoder: whether full attention is a sequence's attention to itself, not cross attention
    attention_heads: H, and head_dim: D, of the attention itself
    gate: whether RFA's memory is to forget
    """

    embed_dim: int
    slots: int
    heads: int = 1
    attention_heads: int = 1
    head_dim: int = 0
    gate: bool = False
    max_length: int = 1024
    activation: str = "exp"
    stride: int = 2
    positions: tuple[int, ...] = ()
    window: int = 0
    seed: int = 1
    encoder: bool = False


class State(Protocol):
    """What decoding carries from one step to the next: batch-first tensors, of constant size."""

    def __getitem__(self, index: int) -> Tensor: ...

    def reorder(self, new_order: Tensor) -> "State": ...


class Control(nn.Module, ABC):
    """One strategy of Table 1, for the attentions that it is defined for.

    Shapes: q (B, H, T, D); k, v (B, H, S, D); x (S, B, E), the representations that k and v were
    projected from; key_padding_mask (B, S), True at padding.
    """

    causal_refusal: ClassVar[str] = ""  # why the strategy has no causal form, if it has none
    tied: ClassVar[bool] = True  # whether layers may share it

    def __init__(self, options: ControlOptions) -> None:
        super().__init__()
        self.slots, self.heads = options.slots, options.heads

    def for_layer(self, number: int, below: dict[int, Tensor]) -> "Control":
        """The control as the layer with this number, from 0, uses it.

        below: what layers hand on to those above them, by their numbers; empty at first
        """
        return self

    @abstractmethod
    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        *,
        causal: bool,
        key_padding_mask: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        """Attention over whole sequences (B, H, T, D). dropout: of leaving out a write."""

    @abstractmethod
    def step(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        state: Any,
        *,
        key_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Causal attention of T >= 1 positions more, and the state after them; None to start."""

    @abstractmethod
    def write(self, k: Tensor, v: Tensor, x: Tensor, key_padding_mask: Tensor | None = None) -> Any:
        """The memory of a whole sequence, which `read` reads: cross attention while decoding."""

    def write_tokens(
        self, x: Tensor, key_padding_mask: Tensor | None = None, dropout: float = 0.0
    ) -> MemoryState | None:
        """The memory of x itself, (B, 1, M, E), of which keys and values may be projected.

        None where that is not the memory of the projected keys and values: heads that write
        differently, control vectors that look at keys, or whose sum is not 1.
        """
        return None

    def read(self, q: Tensor, state: Any) -> Tensor:
        """Attention of T queries over a memory."""
        return abc_read(q, state)

    @abstractmethod
    def vectors(self, k: Tensor, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """phi (B, H or 1, S, M) after the whole sequence: how much of a slot each token is."""

    def weights(self, q: Tensor, state: Any) -> Tensor:
        """p (B, H, T, M), how much each query reads of each slot of a memory.

        A memory whose slot m holds the unit vector e_m gives back its weights.
        """
        slots = state.keys.shape[2]
        units = torch.eye(slots, dtype=state.keys.dtype, device=q.device)
        units = units.expand(*state.keys.shape[:2], slots, slots)
        weights = self.read(q.to(units.dtype), state._replace(values=units))
        return weights * is_written(state.log_mass).unsqueeze(2)

    def extra_repr(self) -> str:
        return f"slots={self.slots}, heads={self.heads}"


class NormalisedControl(Control):
    """Control vectors that are shares of a sum: phi_i = alpha_i / sum_j alpha_j."""

    @abstractmethod
    def log_alpha(self, k: Tensor, x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """(B, H or 1, S, M); -inf writes nothing."""

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        *,
        causal: bool,
        key_padding_mask: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        log_alpha = self.log_alpha(k, x, key_padding_mask)
        log_alpha = drop_writes(log_alpha, dropout, -torch.inf)
        return abc_attention(q, k, v, log_alpha, causal=causal, key_padding_mask=key_padding_mask)

    def step(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        state: Any,
        *,
        key_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        log_alpha = self.log_alpha(k, x, key_padding_mask)
        return abc_step(q, k, v, log_alpha, state, key_padding_mask=key_padding_mask)

    def write(self, k: Tensor, v: Tensor, x: Tensor, key_padding_mask: Tensor | None = None) -> Any:
        return abc_write(k, v, self.log_alpha(k, x, key_padding_mask), key_padding_mask)

    def vectors(self, k: Tensor, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        log_alpha = self.log_alpha(k, x, key_padding_mask)
        if key_padding_mask is not None:
            log_alpha = log_alpha.masked_fill(key_padding_mask[:, None, :, None], -torch.inf)
        return log_alpha.softmax(dim=2).nan_to_num()


class PositionedState(NamedTuple):
    """A `MemoryState`, and position (B,): how many tokens were written."""

    keys: Tensor
    values: Tensor
    log_mass: Tensor
    position: Tensor

    def reorder(self, new_order: Tensor) -> "PositionedState":
        """new_order: (B',) indices into the batch axis."""
        return PositionedState(*(tensor.index_select(0, new_order) for tensor in self))


class PositionControl(Control):
    """Control vectors that depend on nothing but a token's position, padding not counted.

    max_length: positions past it are refused, where there is such a limit
    """

    max_length: int | None = None

    @abstractmethod
    def phi(self, positions: Tensor) -> Tensor:
        """(B, H or 1, S, M) of positions (B, S), counted from 0."""

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        *,
        causal: bool,
        key_padding_mask: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        phi = drop_writes(self.vectors(k, x, key_padding_mask), dropout, 0.0)
        return additive_attention(q, k, v, phi, causal=causal, key_padding_mask=key_padding_mask)

    def step(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        state: Any,
        *,
        key_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        start = None if state is None else state.position
        positions = positions_of(x, key_padding_mask, start)
        phi = self._phi(positions)
        memory = None if state is None else MemoryState(*state[:3])
        out, memory = additive_step(q, k, v, phi, memory, key_padding_mask=key_padding_mask)
        return out, PositionedState(*memory, positions[:, -1] + 1)

    def write(self, k: Tensor, v: Tensor, x: Tensor, key_padding_mask: Tensor | None = None) -> Any:
        return additive_write(k, v, self.vectors(k, x, key_padding_mask), key_padding_mask)

    def vectors(self, k: Tensor, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        phi = self._phi(positions_of(x, key_padding_mask))
        if key_padding_mask is None:
            return phi
        return phi.masked_fill(key_padding_mask[:, None, :, None], 0.0)

    def _phi(self, positions: Tensor) -> Tensor:
        self.check_limit(positions)
        return self.phi(positions.clamp(min=0))

    def check_limit(self, positions: Tensor) -> None:
        """Raises ValueError for positions that the strategy cannot tell apart."""
        limit = self.max_length
        if limit is not None and positions.numel() and int(positions.max()) >= limit:
            raise ValueError(
                f"the {type(self).__name__} was made for sequences of up to {limit} tokens "
                f"(`max_length`), but there are {int(positions.max()) + 1}"
            )


def positions_of(
    x: Tensor, key_padding_mask: Tensor | None = None, start: Tensor | None = None
) -> Tensor:
    """(B, S): how many tokens, padding not counted, came before each; padding as its neighbour.

    x: (S, B, E); start: (B,), tokens of earlier steps
    """
    if key_padding_mask is None:
        tokens = torch.ones(x.shape[1], x.shape[0], dtype=torch.long, device=x.device)
    else:
        tokens = (~key_padding_mask).long()
    positions = tokens.cumsum(dim=1) - 1
    return positions if start is None else positions + start.unsqueeze(1)


def drop_writes(control: Tensor, p: float, nothing: float) -> Tensor:
    """Attention dropout for a bounded memory: leaves out each write with probability p.

    Softmax attention drops entries of its weights; the weights of ABC are the control vectors.
    Dropping before they are normalised keeps a memory a weighted mean in every form of the
    attention. The paper does not say what it does.

    nothing: what stands for no write
    """
    if p == 0:
        return control
    return control.masked_fill(torch.rand_like(control) < p, nothing)
