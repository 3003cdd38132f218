"""ABC as a replacement of fairseq's `MultiheadAttention`: causal, cross and encoder attention."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from fairseq.incremental_decoding_utils import FairseqIncrementalState
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor

from fairseq_memattn.attention import nn as layers
from fairseq_memattn.attention.controls.base import State, Tokens
from fairseq_memattn.attention.nn.control_pool import LayerControl
from fairseq_memattn.attention.nn.dropout import project
from fairseq_memattn.attention.nn.low_rank import merge_updates
from fairseq_memattn.attention.ops.carry import Carry, fade
from fairseq_memattn.attention.ops.common import is_immediate
from fairseq_memattn.modules.dropout import KeepsDropout
from fairseq_memattn.modules.incremental import (
    IncrementalState,
    all_copies,
    equal_in_groups,
    is_identity,
)
from fairseq_memattn.modules.layout import batch_first, time_first
from fairseq_memattn.modules.low_rank import fit_updates

T = TypeVar("T")


class CrossMemory(NamedTuple):
    """The memory of the source sentences during decoding.

    state: of B sentences
    copies: number of hypotheses of a sentence, which are adjacent rows of the queries
    phi: (B, H or 1, S, M), or None if no source weights are requested
    """

    state: State
    copies: int
    phi: Tensor | None

    def sentences(self, new_order: Tensor) -> tuple[Tensor | None, int]:
        """The sentences that beam search keeps, None if that is all of them, and their copies.

        new_order: (B' copies,), the indices of the hypotheses

        Where the hypotheses of a sentence are not adjacent any more, each gets a memory of its own.
        A GPU is not waited for to know it: it asserts that they are, as fairseq's beam search keeps
        them.
        """
        copies = self.copies
        if is_identity(new_order, len(self.state[0]) * copies, copies):
            return None, copies
        sentences = new_order.div(copies, rounding_mode="floor")
        if len(new_order) % copies or not _stay_adjacent(sentences, copies):
            copies = 1
        return sentences[::copies], copies

    def reorder(self, sentences: Tensor | None, copies: int) -> "CrossMemory":
        """The memory of these `sentences`."""
        if sentences is None:
            return self._replace(copies=copies)
        phi = None if self.phi is None else self.phi.index_select(0, sentences)
        return CrossMemory(self.state.reorder(sentences), copies, phi)


class Inputs(NamedTuple):
    """All positions of the hypotheses so far: x (B, T, E), and True at padding (B, T)."""

    x: Tensor
    padding: Tensor

    def reorder(self, new_order: Tensor) -> "Inputs":
        return Inputs(*(part.index_select(0, new_order) for part in self))


class ABCAttention(KeepsDropout, FairseqIncrementalState, layers.ABCAttention):
    """`attention.nn.ABCAttention` with the arguments, layout and decoding state of fairseq.

    embed_dim: E; num_heads: H
    control: owned by the model's `ControlPool`
    causal: fixed for the module, because fairseq's decoder passes no mask in incremental decoding
    source_dim: size of the inputs of keys and values; None is E
    dropout: probability to omit a write
    q_noise, qn_block_size: fairseq's quantization noise

    Sequences are (T, B, E). Padding masks are (B, S), True at padding, which may be on either side.
    """

    get_incremental_state: Callable[..., Any]
    set_incremental_state: Callable[..., Any]

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        control: LayerControl,
        *,
        causal: bool,
        source_dim: int | None = None,
        dropout: float = 0.0,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__(
            *(embed_dim, num_heads),
            control=control,
            causal=causal,
            source_dim=source_dim,
            dropout=dropout,
        )
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            quant_noise(projection, q_noise, qn_block_size)
        self.beam_size = 1
        self.return_source_weights = False

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """query: (T, B, E); key and value: (S, B, source_dim), the same tensor

        `attn_mask` is ignored, see `causal`.

        Returns (T, B, E), and the attention weights of the source tokens (H, B, T, S) if fairseq
        requests those of every head and `--print-alignment` is given. Otherwise the weights are
        None, because computing them has the cost of softmax attention.
        """
        weights = None
        x = batch_first(query)
        drops = self.drop_rate > 0 and not self.training
        if static_kv and incremental_state is not None and not drops:
            out, weights = self._read_source(x, key, key_padding_mask, incremental_state)
            return time_first(out), weights if need_head_weights else None
        if self.causal and incremental_state is not None and drops:
            heads = self._attend_anew(x, key_padding_mask, incremental_state)
        elif self.causal and incremental_state is not None:
            state = self._begun(x, incremental_state)
            if state is None:
                state = self.get_incremental_state(incremental_state, "memory")
            heads, state = self.advance(x, state, key_padding_mask)
            self.set_incremental_state(incremental_state, "memory", state)
        else:
            tokens = self.tokens(x if key is query else self._source(key), key_padding_mask)
            heads = self.attend(x, tokens)
            if need_head_weights and self.return_source_weights:
                phi, p = self.inspect(x, tokens)
                weights = (p @ phi.transpose(2, 3)).transpose(0, 1)
        return time_first(self.join(heads)), weights if need_head_weights else None

    def _attend_anew(
        self, x: Tensor, key_padding_mask: Tensor | None, incremental_state: IncrementalState
    ) -> Tensor:
        """Attention (B, H, T, D) with --retain-dropout, whose writes are drawn anew at each step.

        A memory would keep those of the steps before.
        """
        if key_padding_mask is None:
            key_padding_mask = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        inputs, length = Inputs(x, key_padding_mask), x.shape[1]
        before = self.get_incremental_state(incremental_state, "memory")
        if before is not None:
            inputs = Inputs(
                *(torch.cat(parts, dim=1) for parts in zip(before, inputs, strict=True))
            )
        self.set_incremental_state(incremental_state, "memory", inputs)
        return self.attend(inputs.x, self.tokens(*inputs))[:, :, -length:]

    def begin(self, incremental_state: IncrementalState, carry: Callable[[Tensor], Carry]) -> None:
        """Lets incremental decoding begin with the memory of earlier sentences.

        carry: from the layer's input at the first token to what the sentence begins with
        """
        self.set_incremental_state(incremental_state, "carry", carry)

    def _begun(self, x: Tensor, incremental_state: IncrementalState) -> State | None:
        """The faded memory of earlier sentences at the first step, else None."""
        begin = self.get_incremental_state(incremental_state, "carry")
        if begin is None:
            return None
        self.set_incremental_state(incremental_state, "carry", None)
        carry: Carry = begin(x)
        return fade(carry.start, carry.log_gate)

    def empty_memory(self, rows: int) -> State:
        """The memory before the first sentence, which is that of padding."""
        nothing = self.q_proj.weight.new_zeros(rows, 1, self.source_dim)
        tokens = Tokens(nothing, torch.ones_like(nothing[..., 0], dtype=torch.bool))
        return self.write_memory(tokens)

    def _source(self, key: Tensor) -> Tensor:
        """The source, batch first."""
        return self._once("source", key, lambda: batch_first(key))

    def _once(self, name: str, source: Tensor, make: Callable[[], T]) -> T:
        """The result of `make`, which is called once for all layers of a forward pass."""
        shared = self.layer_control.shared if self.layer_control else None
        return make() if shared is None else shared.once(name, source, make)

    def _read_source(
        self,
        x: Tensor,
        key: Tensor,
        key_padding_mask: Tensor | None,
        incremental_state: IncrementalState,
    ) -> tuple[Tensor, Tensor | None]:
        """Cross attention (B, T, E) in incremental decoding; the first step writes the memory."""
        memory = self.get_incremental_state(incremental_state, "source")
        if memory is None:
            before = self._begun(x, incremental_state)
            memory = self._write_source(self._source(key), key_padding_mask, before)
            self.set_incremental_state(incremental_state, "source", memory)
        # The hypotheses of a sentence share its memory, and are read as its positions.
        q = self.queries(x.reshape(-1, memory.copies * x.shape[1], x.shape[2]))
        out = self.join(self.control.read(q, memory.state)).view_as(x)
        if memory.phi is None:
            return out, None
        weights = self.control.weights(q, memory.state) @ memory.phi.transpose(2, 3)
        weights = weights.unflatten(2, (memory.copies, -1)).permute(1, 0, 2, 3, 4)
        return out, weights.flatten(1, 2)

    def _write_source(
        self, source: Tensor, key_padding_mask: Tensor | None, before: State | None
    ) -> CrossMemory:
        """The memory of the source. Beam search repeats each sentence; it is written only once.

        before: of the sentences before, as many rows as source; None is none

        Whether it does is read from the device, once for all layers at the first step.
        """
        beam = self.beam_size
        copies = beam if self._once("copies", source, lambda: all_copies(source, beam)) else 1
        if copies > 1:
            source = self._once("sentences", source, lambda: source[::copies])
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask[::copies]
        tokens = self.tokens(source, key_padding_mask)
        if before is None:
            memory = self.write_memory(tokens)
        else:
            before = before.reorder(torch.arange(0, len(before[0]), copies, device=source.device))
            keys, values = self.keys(source), self.split(project(self.v_proj, source))
            memory = self.control.extend(keys, values, tokens, before)
        phi = None
        if self.return_source_weights:
            phi = self.vectors(self.keys(source), tokens)
        return CrossMemory(memory, copies, phi)

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """fairseq's hook: selects the states of the hypotheses that survived a beam step."""
        state = self.get_incremental_state(incremental_state, "memory")
        if state is not None:
            self.set_incremental_state(incremental_state, "memory", state.reorder(new_order))
        source = self.get_incremental_state(incremental_state, "source")
        if source is not None and 1 == source.copies < len(new_order) / len(source.state[0]):
            # The sentences, of which each was read once, get their hypotheses.
            source = source._replace(copies=len(new_order) // len(source.state[0]))
            self.set_incremental_state(incremental_state, "source", source)
        elif source is not None:
            kept = self._once("kept", new_order, lambda: source.sentences(new_order))
            self.set_incremental_state(incremental_state, "source", source.reorder(*kept))
        return incremental_state

    def set_beam_size(self, beam_size: int) -> None:
        """fairseq's hook: the number of hypotheses of a sentence in the next beam search."""
        self.beam_size = beam_size

    def make_generation_fast_(self, *, need_attn: bool = False, **kwargs: Any) -> None:
        """fairseq's hook. need_attn: whether `--print-alignment` is given."""
        self.return_source_weights = bool(need_attn)
        super().make_generation_fast_(**kwargs)
        merge_updates(self)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """fairseq's hook: a checkpoint may have been trained with another --abc-low-rank."""
        prefix = f"{name}."
        state_dict |= fit_updates(state_dict, self.state_dict(prefix=prefix), prefix)

    def _get_input_buffer(self, incremental_state: IncrementalState | None) -> IncrementalState:
        """fairseq's hook: the cached keys and values, of which a bounded memory has none."""
        return {}


def _stay_adjacent(sentences: Tensor, copies: int) -> bool:
    """Whether `all_copies`, or on a GPU an assertion that it is so. copies divides the rows."""
    if is_immediate(sentences):
        return all_copies(sentences, copies)
    message = "the hypotheses of a sentence must be adjacent rows"
    torch._assert_async(equal_in_groups(sentences, copies), message)
    return True
