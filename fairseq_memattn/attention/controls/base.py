"""The interface of a control strategy: which slots a token is written into."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn import functional
from torch.nn.functional import linear, pad

from fairseq_memattn.attention.controls.options import ControlOptions, Sizes
from fairseq_memattn.attention.ops.abc import abc_attention, abc_write, advance, read_memory
from fairseq_memattn.attention.ops.additive import additive_attention, additive_step, additive_write
from fairseq_memattn.attention.ops.carry import Carry, before_and_after, fade, merge
from fairseq_memattn.attention.ops.common import (
    MemoryState,
    accumulation_dtype,
    full_precision,
    is_immediate,
    is_written,
    omit_padding,
    over_tokens,
)
from fairseq_memattn.attention.ops.context_parallel import count_before
from fairseq_memattn.attention.ops.heads import split_heads, to_query_heads
from fairseq_memattn.attention.ops.packed import packed_positions
from fairseq_memattn.attention.ops.rotary import Rotation

T = TypeVar("T")


class Shared:
    """Values that one layer computes and other layers of the same forward pass use.

    A program makes one for each forward pass, gives it to every layer, and drops it afterwards.

    layer: the number of the layer that uses the values, from 0
    """

    def __init__(self, layer: int = 0, values: dict[Hashable, Any] | None = None) -> None:
        self.layer = layer
        self.values: dict[Hashable, Any] = {} if values is None else values

    def for_layer(self, layer: int) -> "Shared":
        """The same values as the layer with this number uses them."""
        return Shared(layer, self.values)

    def once(self, owner: Hashable, source: object, make: Callable[[], T]) -> T:
        """What `make` returned when an owner first asked for the same source."""
        known, value = self.values.get(owner, (None, None))
        if known is source:
            return value
        made = make()
        self.values[owner] = (source, made)
        return made


class State(Protocol):
    """The state of decoding: batch-first tensors whose size does not depend on the length."""

    def __getitem__(self, index: int) -> Tensor: ...

    def reorder(self, new_order: Tensor) -> "State": ...


class Tokens(NamedTuple):
    """The tokens that a control writes: a whole sequence, or the positions of one step.

    x: (B, S, E), the representations that keys and values are projected from
    key_padding_mask: (B, S), True at padding, on either side
    shared: what layers share within a forward pass; None shares nothing
    rotation: of queries and keys, where the layer has rotary positions
    cu_seqlens: (N + 1,), of N sequences one after another in the only row, as in `abc_attention`
    context_group: processes that have a part of a sequence each, these tokens the own one
    """

    x: Tensor
    key_padding_mask: Tensor | None = None
    shared: Shared | None = None
    context_group: ProcessGroup | None = None
    rotation: Rotation | None = None
    cu_seqlens: Tensor | None = None

    def positions(self) -> Tensor:
        """`positions_of` the tokens, those in earlier processes counted."""
        if self.cu_seqlens is not None:
            return packed_positions(self.cu_seqlens, self.x.shape[1])
        positions = positions_of(self.x.unsqueeze(1), self.key_padding_mask)
        if self.context_group is None:
            return positions
        return positions + count_before(positions[:, -1] + 1, self.context_group).unsqueeze(1)


class Control(nn.Module, ABC):
    """A control strategy (ABC paper, Table 1), for the attentions that it is defined for.

    Shapes: q (B, H, T, D); k, v (B, G, S, D), where G divides H: keys may have fewer heads.

    sizes: where the control works; options: an instance of the class's `Options`

    Raises OptionError for options that do not fit the sizes.
    """

    Options: ClassVar[type[ControlOptions]] = ControlOptions
    # What `step` and `write` return, for `ABCAttention` to check: a named tuple whose first tensor
    # is (B, G, `state_slots`, D). None leaves checks to the strategy.
    state_class: ClassVar[type | None] = None
    # A class for the states of the registered control alone, which `register_control` makes.
    tagged_state: ClassVar[type | None] = None
    # Whether causal attention uses `Tokens.cu_seqlens`; else it sees sequences as rows of a batch.
    packs: ClassVar[bool] = False
    rotates: ClassVar[bool] = False  # whether it applies `Tokens.rotation`, and not the layer
    causal_refusal: ClassVar[str] = ""  # why the strategy has no causal form, if it has none
    can_tie: ClassVar[bool] = True  # whether layers may share one
    uses_heads: ClassVar[bool] = True  # whether `sizes.heads` makes a difference
    is_kernel: ClassVar[bool] = False  # whether it has features in the place of slots
    # Whether documents can be read sentence by sentence: `attend_from`.
    can_carry: ClassVar[bool] = False
    # Whether causal attention over whole sequences uses `Tokens.context_group`.
    can_split: ClassVar[bool] = False
    # Whether encoder attention sees the tokens around each query: it is then `is_centred`.
    can_centre: ClassVar[bool] = False
    # Whether a layer passes its memory to the next, through `Tokens.shared`.
    passes_memory: ClassVar[bool] = False
    max_length: int | None = None  # the longest sequence, if there is a limit

    def __init__(self, sizes: Sizes, options: ControlOptions) -> None:
        super().__init__()
        if self.causal_refusal and sizes.kind == "causal":
            raise ValueError(f"{type(self).__name__} has no causal form: {self.causal_refusal}.")
        options.check(sizes)
        self.embed_dim, self.slots, self.heads = sizes.embed_dim, sizes.slots, sizes.heads
        self.gate_sizes = sizes.heads, sizes.slots  # what a gate of sentences fades
        self.own_state = vars(type(self)).get("tagged_state") or self.state_class
        self.is_centred = self.can_centre and sizes.kind == "encoder"

    @abstractmethod
    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, *, causal: bool, dropout: float = 0.0
    ) -> Tensor:
        """Attention over whole sequences (B, H, T, D). dropout: probability to omit a write."""

    @abstractmethod
    def step(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, state: Any
    ) -> tuple[Tensor, Any]:
        """Causal attention of T >= 1 further positions, and the state after them.

        state: None at the start
        """

    @abstractmethod
    def write(self, k: Tensor, v: Tensor, tokens: Tokens) -> Any:
        """The memory of a whole sequence, which `read` reads: cross attention in decoding."""

    def write_tokens(self, tokens: Tokens, dropout: float = 0.0) -> MemoryState | None:
        """The memory of `tokens.x`, (B, 1, M, E), whose keys and values can be projected later.

        None if that is not the memory of the projected keys and values: if heads write
        differently, or if control vectors depend on the keys or do not sum to 1.
        """
        return None

    def read(self, q: Tensor, state: Any) -> Tensor:
        """Attention of T queries over a memory."""
        return read_memory(q, state)

    def extend(self, k: Tensor, v: Tensor, tokens: Tokens, state: Any) -> Any:
        """The memory of a sequence and of what came before it."""
        return self.step(k, k, v, tokens, state)[1]

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
        """Attention (B K, H, T, D) over sentences that do not begin with an empty memory.

        Returns also the state after the last sentences, of B rows. dropout must be 0, unless the
        control is a `NormalisedControl`.
        """
        sentences, log_gate, state = carry
        found = []
        for sentence in range(sentences):
            rows = slice(sentence, None, sentences)
            mask = tokens.key_padding_mask
            own = Tokens(tokens.x[rows], None if mask is None else mask[rows])
            state = fade(state, None if log_gate is None else log_gate[rows])
            if causal:
                out, state = self.step(q[rows], k[rows], v[rows], own, state)
            else:
                state = self.extend(k[rows], v[rows], own, state)
                out = self.read(q[rows], state)
            found.append(out)
        return torch.stack(found, dim=1).flatten(0, 1), state

    def tag_state(self, state: Any) -> Any:
        """A state of `state_class` as one of the control's own class."""
        return state if self.own_state is None else self.own_state(*state)

    def plain_state(self, state: Any) -> Any:
        """A state of the control's own class as one of `state_class`."""
        if state is None or self.state_class is None or isinstance(state, self.state_class):
            return state
        return self.state_class(*state)

    @property
    def state_slots(self) -> int:
        """The slots of a state."""
        return self.slots

    @abstractmethod
    def vectors(self, k: Tensor, tokens: Tokens) -> Tensor:
        """phi (B, G or 1, S, M): the share of each token in each slot after the whole sequence."""

    def weights(self, q: Tensor, state: Any) -> Tensor:
        """p (B, H, T, M), the weight of each slot for each query.

        Reading a memory whose slot m holds the unit vector e_m returns the weights.
        """
        units = units_of(state.keys)
        weights = self.read(q.to(units.dtype), state._replace(values=units))
        written = is_written(state.log_mass).unsqueeze(2)
        return weights * to_query_heads(written, q.shape[1])

    def by_head(self, x: Tensor) -> Tensor:
        """(B, S, heads X) as (B, heads, S, X)."""
        return split_heads(x, x.shape[2] // self.heads)

    def extra_repr(self) -> str:
        return f"slots={self.slots}, heads={self.heads}"


class NormalisedControl(Control):
    """Control vectors that are normalised: phi_i = alpha_i / sum_j alpha_j."""

    state_class: ClassVar[type | None] = MemoryState
    can_carry: ClassVar[bool] = True

    @abstractmethod
    def log_alpha(self, k: Tensor, tokens: Tokens) -> Tensor:
        """(B, G or 1, S, M); -inf writes nothing."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, *, causal: bool, dropout: float = 0.0
    ) -> Tensor:
        log_alpha = self._log_alpha(k, tokens)
        log_alpha = drop_writes(log_alpha, dropout, -torch.inf)
        return abc_attention(
            *(q, k, v, log_alpha),
            causal=causal,
            key_padding_mask=tokens.key_padding_mask,
            context_group=tokens.context_group,
            cu_seqlens=tokens.cu_seqlens,
        )

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, state: Any
    ) -> tuple[Tensor, Any]:
        log_alpha = self._log_alpha(k, tokens)
        return advance(q, k, v, log_alpha, state, tokens.key_padding_mask)

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
        """All sentences at once."""
        log_alpha = drop_writes(self._log_alpha(k, tokens), dropout, -torch.inf)
        mask = tokens.key_padding_mask
        written = abc_write(k, v, log_alpha, mask)
        before, after = before_and_after(written, carry)
        if not causal:
            return read_memory(q, merge(before, written)), after
        return advance(q, k, v, log_alpha, before, mask)[0], after

    def extend(self, k: Tensor, v: Tensor, tokens: Tokens, state: Any) -> Any:
        written = self.write(k, v, tokens)
        return written if state is None else merge(state, written)

    def write(self, k: Tensor, v: Tensor, tokens: Tokens) -> Any:
        log_alpha = self._log_alpha(k, tokens)
        return abc_write(k, v, log_alpha, tokens.key_padding_mask)

    def vectors(self, k: Tensor, tokens: Tokens) -> Tensor:
        log_alpha = self._log_alpha(k, tokens)
        log_alpha = omit_padding(log_alpha, tokens.key_padding_mask, -torch.inf)
        return over_tokens(log_alpha).nan_to_num()

    def _log_alpha(self, k: Tensor, tokens: Tokens) -> Tensor:
        return check_slots(self, "log_alpha", self.log_alpha(k, tokens))


class PositionedState(NamedTuple):
    """A `MemoryState`, and position (B,): the number of tokens written."""

    keys: Tensor
    values: Tensor
    log_mass: Tensor
    position: Tensor

    def reorder(self, new_order: Tensor) -> "PositionedState":
        """new_order: (B',) indices into the batch axis."""
        return type(self)(*(tensor.index_select(0, new_order) for tensor in self))


class PositionControl(Control):
    """Control vectors that depend on the position of a token alone. Padding has no position."""

    can_split: ClassVar[bool] = True
    adds_tokens: ClassVar[bool] = True  # whether a slot is a sum of tokens
    state_class: ClassVar[type | None] = PositionedState

    @abstractmethod
    def phi(self, positions: Tensor) -> Tensor:
        """(B, G or 1, S, M) of positions (B, S), counted from 0."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, *, causal: bool, dropout: float = 0.0
    ) -> Tensor:
        phi = self.vectors(k, tokens)
        if self.adds_tokens:
            phi = functional.dropout(phi, dropout)  # scales the other writes, since it is a sum
        else:
            phi = drop_writes(phi, dropout, 0.0)
        return additive_attention(
            *(q, k, v, phi),
            causal=causal,
            key_padding_mask=tokens.key_padding_mask,
            context_group=tokens.context_group,
        )

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, state: Any
    ) -> tuple[Tensor, Any]:
        start = None if state is None else state.position
        positions = positions_of(k, tokens.key_padding_mask, start)
        phi = self._phi(positions, state is None)
        memory = None if state is None else MemoryState(*state[:3])
        out, memory = additive_step(q, k, v, phi, memory, key_padding_mask=tokens.key_padding_mask)
        return out, PositionedState(*memory, positions[:, -1] + 1)

    def write(self, k: Tensor, v: Tensor, tokens: Tokens) -> Any:
        memory = additive_write(k, v, self.vectors(k, tokens), tokens.key_padding_mask)
        return PositionedState(*memory, positions_of(k, tokens.key_padding_mask)[:, -1] + 1)

    def vectors(self, k: Tensor, tokens: Tokens) -> Tensor:
        phi = self._phi(tokens.positions(), tokens.context_group is None)
        return omit_padding(phi, tokens.key_padding_mask)

    def _phi(self, positions: Tensor, from_start: bool) -> Tensor:
        self.check_limit(positions, from_start)
        return check_slots(self, "phi", self.phi(positions.clamp(min=0)))

    def check_limit(self, positions: Tensor, from_start: bool) -> None:
        """Raises ValueError for positions that the strategy cannot tell apart.

        positions: (B, S); from_start: whether they begin at 0. Those of S tokens are then below S,
            and need not be read back from the device where S tokens fit.

        On a GPU, which is not waited for, it is a device-side assertion in the place of a
        ValueError.
        """
        limit = self.max_length
        if limit is None or (from_start and positions.shape[1] <= limit):
            return
        supported = f"{type(self).__name__} supports sequences of up to {limit} tokens"
        if not is_immediate(positions):
            torch._assert_async((positions < limit).all(), supported)
        elif positions.numel() and int(positions.max()) >= limit:
            raise ValueError(
                f"{supported} (`max_length`), but there are {int(positions.max()) + 1}"
            )


def positions_of(
    k: Tensor, key_padding_mask: Tensor | None = None, start: Tensor | None = None
) -> Tensor:
    """(B, S): the number of tokens before each token. Padding has the position of its neighbour.

    k: (B, H, S, D); start: (B,), the tokens of earlier steps
    """
    if key_padding_mask is None:
        positions = torch.arange(k.shape[2], device=k.device).expand(k.shape[0], -1)
    else:
        positions = (~key_padding_mask).cumsum(dim=1) - 1
    return positions if start is None else positions + start.unsqueeze(1)


def drop_writes(control: Tensor, p: float, nothing: float) -> Tensor:
    """Attention dropout for a bounded memory: omits each write with probability p.

    Softmax attention drops entries of its weights. The corresponding weights of ABC are the
    control vectors. Dropping them before the normalisation keeps a slot a weighted mean in every
    form of the attention. This is our choice; the paper does not mention dropout of writes.

    nothing: the value that stands for no write
    """
    if p == 0:
        return control
    return control.masked_fill(torch.rand_like(control) < p, nothing)


def check_slots(control: Control, name: str, vectors: Tensor) -> Tensor:
    """The control vectors (B, G or 1, S, M) that a strategy returned.

    Raises ValueError for another number of slots than the control has.
    """
    if vectors.dim() != 4 or vectors.shape[3] != control.slots:
        raise ValueError(
            f"`{name}` of {type(control).__name__} must return (B, heads or 1, S, "
            f"{control.slots}), but returned {tuple(vectors.shape)}."
        )
    return vectors


class FloatLinear(nn.Linear):
    """`nn.Linear` in float32, whatever the dtypes of weights and inputs (float64 of float64).

    The exponential of a logit that bfloat16 rounds is off by a share that grows with the logit.
    """

    @full_precision
    def forward(self, input: Tensor) -> Tensor:
        dtype = accumulation_dtype(input)
        if input.dtype == self.weight.dtype == dtype:
            return linear(input, self.weight, self.bias)
        bias = None if self.bias is None else self.bias.to(dtype)
        return linear(input.to(dtype), self.weight.to(dtype), bias)


def units_of(x: Tensor) -> Tensor:
    """The unit vectors (B, H, S, S) of as many dimensions as x (B, H, S, ...) has tokens or slots.

    What an attention with these values returns is its weights.
    """
    size = x.shape[2]
    return torch.eye(size, dtype=x.dtype, device=x.device).expand(*x.shape[:2], -1, -1)


def unit_values(size: int, like: Tensor) -> tuple[Tensor, ...]:
    """The unit vectors of `size` dimensions, cut into values as wide as those that are replaced.

    like: (B, H, *, D), the values that are replaced, or the keys

    Returns ceil(size / D) tensors (B, H, size, D): columns 0 to D - 1 of the unit matrix, D to
    2 D - 1, and so on, with zeros after the last one.
    """
    batch, heads, _, width = like.shape
    units = torch.eye(size, dtype=like.dtype, device=like.device)
    columns = pad(units, (0, -size % width)).split(width, dim=1)
    return tuple(piece.expand(batch, heads, -1, -1) for piece in columns)
