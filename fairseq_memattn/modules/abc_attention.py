"""ABC in the place of fairseq's `MultiheadAttention`: causal, cross and encoder attention."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fairseq.incremental_decoding_utils import FairseqIncrementalState
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from fairseq_memattn.attention.controls.base import Control, State
from fairseq_memattn.attention.ops.state import MemoryState, is_written
from fairseq_memattn.modules.incremental import IncrementalState, is_identity


class CrossMemory(NamedTuple):
    """The memory of the source sentences while their translations are decoded.

    state: of B sentences; copies: hypotheses a sentence, in neighbouring rows of the queries
    writing: phi (B, H or 1, S, M) where source weights were asked for
    """

    state: State
    copies: int
    writing: Tensor | None

    def reorder(self, new_order: Tensor) -> "CrossMemory":
        """new_order: (B' copies,) indices of hypotheses, as beam search gives them."""
        sentences = new_order.div(self.copies, rounding_mode="floor")
        copies = self.copies
        if len(new_order) % copies or not _all_copies(sentences, copies, dim=0):
            copies = 1
        sentences = sentences[::copies]
        state, writing = self.state, self.writing
        if not is_identity(sentences, len(state[0])):
            state = state.reorder(sentences)
            writing = None if writing is None else writing.index_select(0, sentences)
        return CrossMemory(state, copies, writing)


class ABCAttention(FairseqIncrementalState, nn.Module):
    """Multi-head attention over a bounded memory, in fairseq's conventions.

    embed_dim: E; num_heads: H; control: what writes tokens into slots, owned by the model
    source_dim: size of the keys' and values' inputs, E unless told
    causal: each position reads only the positions before it and itself. A property of the
        module, because fairseq's decoder passes no mask while it decodes incrementally
    dropout: probability of leaving out a write

    Sequences come as (T, B, E) and padding masks as (B, S), True at padding, on either side.
    """

    get_incremental_state: Callable[..., Any]
    set_incremental_state: Callable[..., Any]

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        control: Control,
        *,
        causal: bool,
        source_dim: int | None = None,
        dropout: float = 0.0,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        source_dim = source_dim or embed_dim
        self.embed_dim, self.num_heads, self.causal = embed_dim, num_heads, causal
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise ValueError(
                f"`embed_dim` must be a multiple of the {num_heads} heads, "
                f"but is {embed_dim} instead."
            )
        self.dropout = dropout
        self._control = (control,)  # in a tuple: the model's `ControlPool` registers it
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            quant_noise(nn.Linear(size, embed_dim), q_noise, qn_block_size)
            for size in (embed_dim, source_dim, source_dim, embed_dim)
        )
        self.reset_parameters()
        self.beam_size = 1
        self.return_source_weights = False

    @property
    def control(self) -> Control:
        return self._control[0]

    def reset_parameters(self) -> None:
        """fairseq's initialisation of its own attention."""
        gain = 2**-0.5 if self.k_proj.in_features == self.embed_dim else 1.0
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight, gain=gain)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(
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
        """query: (T, B, E); key and value: (S, B, source_dim), one and the same tensor.

        Returns (T, B, E), and the weights of the source tokens (H, B, T, S) where fairseq asks
        for those of every head and `--print-alignment` is on, else None: computing them costs
        what a bounded memory saves.
        `attn_mask` is not looked at: causality is a property of the module.
        """
        if static_kv and incremental_state is not None:
            heads, weights = self._read_source(
                self._heads(self.q_proj(query)), key, key_padding_mask, incremental_state
            )
        else:
            weights = None
            if self.causal and incremental_state is not None:
                q, k, v = self._project(query, key)
                state = self.get_incremental_state(incremental_state, "memory")
                heads, state = self.control.step(
                    q, k, v, key, state, key_padding_mask=key_padding_mask
                )
                self.set_incremental_state(incremental_state, "memory", state)
            else:
                heads = self._attend(query, key, key_padding_mask)
                if need_head_weights and self.return_source_weights:
                    writing, reading = self.inspect(query, key, key_padding_mask)
                    weights = (reading @ writing.transpose(2, 3)).transpose(0, 1)
        out = self.out_proj(heads.permute(2, 0, 1, 3).flatten(2))
        return out, weights if need_head_weights else None

    def _attend(self, query: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """Attention over whole sequences (B, H, T, D)."""
        dropout = self.dropout if self.training else 0.0
        if not self.causal:
            memory = self._write_tokens(source, key_padding_mask, dropout)
            if memory is not None:
                return self.control.read(self._heads(self.q_proj(query)), memory)
        q, k, v = self._project(query, source)
        return self.control.attend(
            q,
            k,
            v,
            source,
            causal=self.causal,
            key_padding_mask=key_padding_mask,
            dropout=dropout,
        )

    def _write_tokens(
        self, source: Tensor, key_padding_mask: Tensor | None, dropout: float = 0.0
    ) -> MemoryState | None:
        """The memory of keys and values that are projected after they were written.

        Writing is linear too, and slots are fewer than tokens. None where there is no such
        memory, or nothing to save.
        """
        if self.control.slots >= len(source):
            return None
        memory = self.control.write_tokens(source, key_padding_mask, dropout)
        if memory is None:
            return None
        tokens = memory.keys.squeeze(1).transpose(0, 1).to(source.dtype)
        # Projections have biases; what holds nothing is to stay zero.
        written = is_written(memory.log_mass).unsqueeze(3)
        keys, values = (
            self._heads(projection(tokens)).to(memory.keys.dtype) * written
            for projection in (self.k_proj, self.v_proj)
        )
        return MemoryState(keys, values, memory.log_mass)

    def inspect(
        self, query: Tensor, key: Tensor, key_padding_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What full (not causal) attention does: phi (B, H or 1, S, M) and p (B, H, T, M).

        phi: the share of each slot that each token makes up, over the whole sequence
        p: how much each query reads of each slot; p phi^T are the weights of the tokens
        """
        q, k, v = self._project(query, key)
        state = self.control.write(k, v, key, key_padding_mask)
        return self.control.vectors(k, key, key_padding_mask), self.control.weights(q, state)

    def _read_source(
        self,
        q: Tensor,
        source: Tensor,
        key_padding_mask: Tensor | None,
        incremental_state: IncrementalState,
    ) -> tuple[Tensor, Tensor | None]:
        """Cross attention while decoding: the source is written once, at the first step."""
        memory = self.get_incremental_state(incremental_state, "source")
        if memory is None:
            memory = self._write_source(source, key_padding_mask)
            self.set_incremental_state(incremental_state, "source", memory)
        batch, heads, length, width = q.shape
        # The hypotheses of a sentence read its memory side by side.
        q = q.unflatten(0, (-1, memory.copies)).transpose(1, 2).flatten(2, 3)
        out = self.control.read(q, memory.state)
        weights = None
        if memory.writing is not None:
            weights = self.control.weights(q, memory.state) @ memory.writing.transpose(2, 3)
            weights = weights.unflatten(2, (memory.copies, length)).transpose(1, 2).flatten(0, 1)
            weights = weights.transpose(0, 1)
        out = out.unflatten(2, (memory.copies, length)).transpose(1, 2)
        return out.reshape(batch, heads, length, width), weights

    def _write_source(self, source: Tensor, key_padding_mask: Tensor | None) -> CrossMemory:
        """Beam search repeats every sentence; here each is written once."""
        copies = self.beam_size if _all_copies(source, self.beam_size, dim=1) else 1
        source = source[:, ::copies]
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask[::copies]
        writing = None
        if self.return_source_weights:
            k = self._heads(self.k_proj(source))
            writing = self.control.vectors(k, source, key_padding_mask)
        memory: State | None = self._write_tokens(source, key_padding_mask)
        if memory is None:
            k, v = self._heads(self.k_proj(source)), self._heads(self.v_proj(source))
            memory = self.control.write(k, v, source, key_padding_mask)
        return CrossMemory(memory, copies, writing)

    def _project(self, query: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        projections = (self.q_proj(query), self.k_proj(source), self.v_proj(source))
        q, k, v = (self._heads(projection) for projection in projections)
        return q, k, v

    def _heads(self, x: Tensor) -> Tensor:
        """(T, B, E) as (B, H, T, D)."""
        return x.unflatten(2, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3)

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """fairseq's hook: the states of the hypotheses that survived a beam step."""
        state = self.get_incremental_state(incremental_state, "memory")
        if state is not None and not is_identity(new_order, len(state[0])):
            self.set_incremental_state(incremental_state, "memory", state.reorder(new_order))
        source = self.get_incremental_state(incremental_state, "source")
        if source is not None:
            self.set_incremental_state(incremental_state, "source", source.reorder(new_order))
        return incremental_state

    def set_beam_size(self, beam_size: int) -> None:
        """fairseq's hook: how many hypotheses a sentence beam search is about to keep."""
        self.beam_size = beam_size

    def make_generation_fast_(self, need_attn: bool = False, **kwargs: Any) -> None:
        """fairseq's hook: need_attn is `--print-alignment`."""
        self.return_source_weights = bool(need_attn)

    def _get_input_buffer(self, incremental_state: IncrementalState | None) -> IncrementalState:
        """fairseq's decoder layer looks here for cached keys; a bounded memory has none."""
        return {}


def _all_copies(x: Tensor, copies: int, dim: int) -> bool:
    """Whether x consists of groups of `copies` equal neighbours along dim."""
    if copies == 1 or x.shape[dim] % copies:
        return copies == 1
    groups = x.unflatten(dim, (-1, copies))
    return bool((groups == groups.narrow(dim + 1, 0, 1)).all())
