"""Multi-head attention over a bounded memory, as a layer for any PyTorch program.

Source: Peng et al., "ABC: Attention with Bounded-memory Control", equations 3-5 and Table 1.
"""

from functools import partial
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from fairseq_memattn.attention.controls.base import Control, Shared, Tokens
from fairseq_memattn.attention.controls.options import Sizes
from fairseq_memattn.attention.controls.registry import control_class, make_control
from fairseq_memattn.attention.nn.control_pool import LayerControl
from fairseq_memattn.attention.nn.dropout import AttentionDropout, project
from fairseq_memattn.attention.nn.inspection import after_each_token, around_each_token
from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.common import MemoryState, accumulation_dtype, is_written
from fairseq_memattn.attention.ops.heads import split_heads, to_query_heads
from fairseq_memattn.attention.ops.packed import Rows
from fairseq_memattn.attention.ops.rotary import Rotary, Rotation

NORM_EPSILON = 1e-6  # of Qwen3's norms of queries and keys


class ABCAttention(AttentionDropout):
    """Multi-head attention over a memory of M slots, in time and memory O(S M).

    embed_dim: E; num_heads: H
    num_kv_heads: G, the heads of keys, values, slots and controls; divides H, which is the default.
        Each serves the queries of H / G heads (Ainslie et al., "GQA", 2023)
    head_dim: D; None is E / H
    slots: M, the memory slots; RFA and T2R have as many features, and ELU those of a head
    control: the name of a registered control ("mlp", "window", "linformer", ..., `docs/controls.md`
        has them all), or a `Control` that another layer has too: layers that share one tie their
        phi, as in section 4 of the paper; or that of a layer in a `ControlPool`, which then owns it
    causal: each position reads what the positions up to its own wrote. Otherwise all positions
        read the memory of the whole source
    source_dim: the size of the source's representations; None is E, and the only value for causal
        attention
    dropout: probability to omit a write, in training
    bias: whether the projections have biases
    qk_norm: whether each head of queries and of keys is divided by its root mean square and
        multiplied by learned numbers (`q_norm` and `k_norm`, D each), before `rotary`
    rotary: rotary positions of queries and keys; None has none. Not for cross attention. A control
        with slots of several tokens averages keys of different rotations; `rotates` of a control
        class says that it turns exact keys alone
    share_control: one control for all heads in the place of one for each head; cheaper where H M
        nears E. Refused for controls on which it has no effect
    max_positions: the longest sequence of the model. Controls that need to know it (Linformer,
        compressive) use it, the others ignore it
    options: those of the control, by name, such as `activation="sigmoid"` of "mlp"

    Encoder attention is `causal=False` without a source, cross attention is `causal=False` with
    one. A window is centred on its query in encoder attention and holds the last tokens of the
    source in cross attention; `source_dim` given, if only as E, selects cross attention.

    `torch.compile` works. The graph breaks where numbers are read back from the device to choose
    between equal forms:
    - causal attention by PyTorch operations, but for windows and kernel attention: whether every
      slot is written, and whether write logits rise slowly enough for the fast form. The Triton
      kernels of a GPU decide this there
    - windows and `local_global`, if there is a `key_padding_mask`: whether any padding is before
      a token. On a GPU tokens move without looking
    - sequences longer than the control's maximum, and steps of controls that have one: whether
      the limit is exceeded. On a GPU that is a device-side assertion
    All other forms compile to one graph.

    Raises ValueError (OptionError for a control's options) for values out of range or an unknown
    control, and TypeError for an option that the control does not have.
    """

    layer_control: LayerControl | None = None  # where a `ControlPool` owns the control
    context_group: ProcessGroup | None = None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        slots: int | None = None,
        control: str | Control | LayerControl = "mlp",
        causal: bool = False,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        qk_norm: bool = False,
        rotary: Rotary | None = None,
        source_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        share_control: bool = False,
        max_positions: int = 1024,
        **options: Any,
    ) -> None:
        check.instance("control", control, str, Control, LayerControl)
        super().__init__()
        if head_dim is None:
            check.heads(embed_dim, num_heads)
            head_dim = embed_dim // num_heads
        check.sizes(embed_dim=embed_dim, num_heads=num_heads, head_dim=head_dim)
        check.heads(num_heads, num_kv_heads or num_heads, "num_heads", "num_kv_heads")
        check.instance("rotary", rotary, Rotary, NoneType)
        check.instance("causal", causal, bool)
        check.dropout(dropout)
        if source_dim is not None:
            check.sizes(source_dim=source_dim)
        if causal and source_dim is not None:
            raise ValueError(
                f"`source_dim` must be None for causal attention, which reads its own x, "
                f"but is {source_dim} instead."
            )
        self.embed_dim, self.num_heads, self.causal = embed_dim, num_heads, causal
        self.head_dim, self.num_kv_heads = head_dim, num_kv_heads or num_heads
        self.is_cross = not causal and source_dim is not None
        if rotary is not None and self.is_cross:
            raise ValueError("`rotary` must be None for cross attention, but is given.")
        self.rotary = rotary
        self.source_dim = source_dim or embed_dim
        self.dropout = dropout
        inner, of_keys = num_heads * head_dim, self.num_kv_heads * head_dim
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(*sizes, bias=bias)
            for sizes in (
                (embed_dim, inner),
                (self.source_dim, of_keys),
                (self.source_dim, of_keys),
                (inner, embed_dim),
            )
        )
        self.q_norm, self.k_norm = (
            nn.RMSNorm(head_dim, eps=NORM_EPSILON) if qk_norm else None for _ in range(2)
        )
        self.reset_parameters()
        if not isinstance(control, str):
            made = control.control if isinstance(control, LayerControl) else control
            if slots not in (None, made.slots):
                raise ValueError(f"`slots` must be the {made.slots} of `control`, but is {slots}.")
            if share_control and made.heads > 1:
                raise ValueError(
                    "`share_control` must be False where `control` is a Control, which has "
                    f"{made.heads} heads, but is True instead."
                )
            if options:
                raise TypeError(
                    "options belong to the name of a control, but "
                    f"{type(made).__name__} was given {', '.join(options)}"
                )
            if isinstance(control, LayerControl):
                self.layer_control = control
            else:
                self._check_shared(made)
                self.control = made  # type: ignore[misc]
            return
        if share_control and not control_class(control).uses_heads:
            raise ValueError(
                f"`share_control` must be False for the control {control!r}, on which it has no "
                "effect, but is True instead."
            )
        if slots is None:
            raise TypeError("`slots` is required, unless `control` is a Control that exists")
        full = "encoder" if source_dim is None else "cross"
        sizes = Sizes(
            embed_dim=self.source_dim,
            slots=slots,
            heads=1 if share_control else self.num_kv_heads,
            attention_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            max_positions=max_positions,
            kind="causal" if causal else full,
        )
        self.control = make_control(control, sizes, **options)  # type: ignore[misc]

    @property
    def control(self) -> Control:
        """The control: a module of this layer, or of the pool that `layer_control` belongs to."""
        if self.layer_control is not None:
            return self.layer_control.control
        return self._modules["control"]  # type: ignore[return-value]

    def reset_parameters(self) -> None:
        """Initialises the projections as fairseq does those of its attention."""
        gain = 2**-0.5 if self.source_dim == self.embed_dim else 1.0
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight, gain=gain)
        nn.init.xavier_uniform_(self.out_proj.weight)
        if self.out_proj.bias is not None:
            nn.init.zeros_(self.out_proj.bias)

    def forward(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        shared: Shared | None = None,
        positions: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
    ) -> Tensor:
        """Attention of x to a source, or to x itself.

        x: (B, T, E); source: (B, S, source_dim), x itself if None
        key_padding_mask: (B, S), True at padding, on either side; padding is never written
        shared: what layers share within this forward pass; a model gives `shared.for_layer(n)` to
            its layer n. A control that shares nothing ignores it
        positions: (B, T) or (T,) of integers, for `rotary`; None counts from 0, without padding.
            Layers with `shared` compute the angles of one tensor once
        cu_seqlens: (N + 1,), for causal attention of N sequences one after another in the only row,
            as in `abc_attention`; "mlp" computes them there, all other controls as rows of a batch
            that are as long as the longest. Positions count from the start of each sequence

        Returns (B, T, E).

        Raises ValueError for shapes that do not fit, for a source of a causal layer or of a window
        of encoder attention, and for cross attention without a source.
        """
        check.instance("shared", shared, Shared, NoneType)
        if self.causal and source is not None:
            raise ValueError("causal attention reads its own `x`, but was given a `source`.")
        if source is not None:
            self._check_not_centred()
        elif self.is_cross:
            raise ValueError("cross attention, which `source_dim` selects, needs a `source`.")
        else:
            source = x
        self._check(x, source, key_padding_mask)
        self._check_positions(x, positions)
        if cu_seqlens is not None:
            check.packed(x, cu_seqlens, self.causal, key_padding_mask)
            if self.context_group is not None and not self.control.packs:
                name = type(self.control).__name__
                raise ValueError(f"`cu_seqlens` of {name} needs whole sequences in each process.")
        tokens = self.tokens(source, key_padding_mask, shared, positions, cu_seqlens)
        return self.join(self.attend(x, tokens))

    def split_context(self, group: ProcessGroup | None) -> None:
        """Lets processes have a part of each sequence (B, T, E), of any T, in their order.

        In each process `forward` then takes and returns the own part. Processes exchange a memory,
        whose size does not depend on T, so that each needs memory for its own part alone. All call
        `forward`, and `backward` if one does. `step` is not split.

        group: None for whole sequences again. A copy of the layer has whole sequences

        Raises ValueError for a layer that is not causal, and for a control without such a form.
        """
        if group is not None and not (self.causal and self.control.can_split):
            raise ValueError(
                "`split_context` needs causal attention with a control whose memory is a sum over "
                f"tokens, but this layer has {type(self.control).__name__} and "
                f"causal={self.causal}."
            )
        self.context_group = group

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "context_group": None}

    def step(
        self,
        x: Tensor,
        state: Any = None,
        *,
        key_padding_mask: Tensor | None = None,
        shared: Shared | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Continues causal attention: T >= 1 further positions, such as a prompt or one token.

        x: (B, T, E); key_padding_mask: (B, T)
        state: of the positions before, None at the start. Its size is constant;
            `state.reorder(new_order)` selects rows of the batch, as beam search does. The given
            state is not changed.
        shared: as in `forward`, of this step
        positions: as in `forward`; with `rotary` needed once there is a state

        Returns (B, T, E) and the state after the last position: a named tuple of tensors, of a
        class that the control has for itself. `torch.save` and `torch.load` keep it.

        Raises ValueError for a layer that is not causal and for shapes that do not fit, and
        TypeError for a state of another class than the control's.
        """
        if not self.causal:
            raise ValueError("`step` needs causal attention, but this layer has causal=False.")
        self._check(x, x, key_padding_mask)
        if state is not None:
            self._check_state("state", state, x)
            if self.rotary is not None and positions is None:
                raise ValueError("`rotary` needs the `positions` of x after a `state`.")
        self._check_positions(x, positions)
        heads, state = self.advance(x, state, key_padding_mask, positions, shared)
        return self.join(heads), self.control.tag_state(state)

    def write(self, source: Tensor, key_padding_mask: Tensor | None = None) -> Any:
        """The memory of a source, for `read`: cross attention writes once and reads often.

        source: (B, S, source_dim); key_padding_mask: (B, S). Returns a state with `reorder`.

        Raises ValueError for a causal layer, for a window of encoder attention and for shapes
        that do not fit.
        """
        if self.causal:
            raise ValueError("`write` needs causal=False; a causal layer has `step`.")
        self._check_not_centred()
        check.batch("source", source, self.source_dim, key_padding_mask)
        return self.control.tag_state(self.write_memory(self.tokens(source, key_padding_mask)))

    def read(self, x: Tensor, memory: Any) -> Tensor:
        """Attention of x (B, T, E) to a memory that `write` returned: (B, T, E).

        Raises ValueError for shapes that do not fit, and TypeError for a memory of another class
        than the control's.
        """
        check.batch("x", x, self.embed_dim)
        self._check_state("memory", memory, x)
        return self.join(self.control.read(self.queries(x), self.control.plain_state(memory)))

    # --- Without checks, for models that have made their inputs.

    def tokens(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None,
        shared: Shared | None = None,
        positions: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
    ) -> Tokens:
        """What the control writes, with what the layers of its pool share if nothing is given."""
        if shared is None and self.layer_control is not None:
            shared = self.layer_control.shared
        tokens = Tokens(x, key_padding_mask, shared, self.context_group, cu_seqlens=cu_seqlens)
        rotary, dtype = self.rotary, accumulation_dtype(x)
        if rotary is None:
            return tokens
        if positions is None:
            positions, shared = tokens.positions(), None

        def rotation() -> Rotation:
            return rotary.rotation(positions, self.head_dim, dtype)

        if shared is None:
            return tokens._replace(rotation=rotation())
        return tokens._replace(rotation=shared.once((rotary, dtype), positions, rotation))

    def attend(self, x: Tensor, source: Tokens) -> Tensor:
        """Attention over whole sequences, (B, H, T, D), after those that a pool's pass carries."""
        dropout = self.drop_rate
        carried = None if self.layer_control is None else self.layer_control.carried
        if carried is None and not self.causal:
            memory = self.write_tokens(source, dropout)
            if memory is not None:
                return self.control.read(self.queries(x), memory)
        q, k, v = self.project(x, source.x, source.rotation)
        if source.cu_seqlens is not None and not self.control.packs:
            return self._attend_packed(q, k, v, source)
        if self.layer_control is None or carried is None:
            return self.control.attend(q, k, v, source, causal=self.causal, dropout=dropout)
        layer = self.layer_control.layer
        carry = carried.of(layer, source.x)
        out, carried.after[layer] = self.control.attend_from(
            *(q, k, v, source, carry), causal=self.causal, dropout=dropout
        )
        return out

    def _attend_packed(self, q: Tensor, k: Tensor, v: Tensor, source: Tokens) -> Tensor:
        """Causal attention of packed sequences, which are rows of a batch on the way."""
        assert source.cu_seqlens is not None
        shared = source.shared or Shared()
        rows = shared.once(Rows, source.cu_seqlens, partial(Rows.of, source.cu_seqlens, q.shape[2]))
        tokens = Tokens(rows.unpack(source.x.unsqueeze(1)).squeeze(1), rows.padding)
        if source.rotation is not None:
            tokens = tokens._replace(rotation=source.rotation.take(rows.order))
        q, k, v = (rows.unpack(x) for x in (q, k, v))
        out = self.control.attend(q, k, v, tokens, causal=True, dropout=self.drop_rate)
        return rows.pack(out)

    def advance(
        self,
        x: Tensor,
        state: Any,
        key_padding_mask: Tensor | None,
        positions: Tensor | None = None,
        shared: Shared | None = None,
    ) -> tuple[Tensor, Any]:
        """Causal attention of the positions after a state, (B, H, T, D), and the state after."""
        tokens = self.tokens(x, key_padding_mask, shared, positions)
        q, k, v = self.project(x, x, tokens.rotation)
        return self.control.step(q, k, v, tokens, self.control.plain_state(state))

    def write_memory(self, source: Tokens) -> Any:
        """The memory of a whole source."""
        memory = self.write_tokens(source)
        if memory is not None:
            return memory
        return self.control.write(
            self.keys(source.x), self.split(project(self.v_proj, source.x)), source
        )

    def write_tokens(self, source: Tokens, dropout: float = 0.0) -> MemoryState | None:
        """The memory of keys and values that are projected after the tokens are written.

        Writing and projecting are both linear, and slots are fewer than tokens. None where the
        control has no such memory, or where it saves nothing; `torch.export`, whose graphs are for
        sources of all lengths, always saves.
        """
        if self.k_norm is not None or source.rotation is not None:
            return None
        if not torch.compiler.is_exporting() and self.control.slots >= source.x.shape[1]:
            return None
        memory = self.control.write_tokens(source, dropout)
        if memory is None:
            return None
        tokens = memory.keys.squeeze(1).to(source.x.dtype)
        # A projection has a bias; an empty slot must stay zero.
        written = is_written(memory.log_mass).unsqueeze(3)
        keys, values = (
            self.split(projection(tokens)).to(memory.keys.dtype) * written
            for projection in (self.k_proj, self.v_proj)
        )
        return MemoryState(keys, values, memory.log_mass)

    def inspect(self, x: Tensor, source: Tokens) -> tuple[Tensor, Tensor]:
        """What tokens write into slots and queries read: phi (B, H or 1, S, M), p (B, H, T, M).

        phi: the share of each token in each slot, after the whole source
        p: the weight of each slot for each query; p phi^T are the weights of the tokens. In causal
            attention, the slots are those right after the query's own token. In a window around
            each query, each token is a slot, phi is (1, 1, S, S), and M is S
        """
        q, k, v = self.project(x, source.x, source.rotation)
        if self.causal:
            phi, p = after_each_token(self.control, q, k, v, source)
            return self.of_queries(phi), p
        if self.control.is_centred:
            return around_each_token(self.control, q, k, v, source)
        p = self.control.weights(q, self.control.write(k, v, source))
        return self.vectors(k, source), p

    def vectors(self, k: Tensor, source: Tokens) -> Tensor:
        """phi (B, H or 1, S, M), those of its keys for each head of queries."""
        return self.of_queries(self.control.vectors(k, source))

    def of_queries(self, phi: Tensor) -> Tensor:
        return phi if phi.shape[1] == 1 else to_query_heads(phi, self.num_heads)

    def project(
        self, x: Tensor, source: Tensor, rotation: Rotation | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, H, T, D), k and v (B, G, S, D)."""
        q, k, v = self.queries(x), self.keys(source), self.split(project(self.v_proj, source))
        if rotation is None or self.control.rotates:
            return q, k, v
        return rotation.turn(q), rotation.turn(k), v

    def queries(self, x: Tensor) -> Tensor:
        """(B, H, T, D), without rotation."""
        q = self.split(project(self.q_proj, x))
        return q if self.q_norm is None else self.q_norm(q)

    def keys(self, source: Tensor) -> Tensor:
        """(B, G, S, D), without rotation."""
        k = self.split(project(self.k_proj, source))
        return k if self.k_norm is None else self.k_norm(k)

    def split(self, x: Tensor) -> Tensor:
        """(B, T, heads D) as (B, heads, T, D), for queries and keys alike."""
        return split_heads(x, self.head_dim)

    def _check(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> None:
        check.batch("x", x, self.embed_dim)
        check.batch("source", source, self.source_dim, key_padding_mask)
        if source.shape[0] != x.shape[0]:  # `len` would make them constants of an exported graph
            raise ValueError(
                f"`source` must have the {len(x)} rows of `x`, but has {len(source)} instead."
            )

    def _check_state(self, name: str, state: Any, x: Tensor) -> None:
        """The tensors of one state belong together, so that the first is all that is compared."""
        if self.control.own_state is None:
            return
        check.instance(name, state, self.control.own_state)
        wanted = (x.shape[0], self.num_kv_heads, self.control.state_slots, self.head_dim)
        check.shape(f"{name}.{state._fields[0]}", state[0], wanted)

    def _check_positions(self, x: Tensor, positions: Tensor | None) -> None:
        if positions is None:
            return
        if self.rotary is None:
            raise ValueError("`positions` need a layer with `rotary`.")
        check.instance("positions", positions, Tensor)
        length = x.shape[1]
        if positions.shape not in ((length,), (1, length), (x.shape[0], length)):
            raise ValueError(
                f"`positions` must be ({length},) or ({x.shape[0]}, {length}), "
                f"but is {tuple(positions.shape)} instead."
            )

    def _check_not_centred(self) -> None:
        if self.control.is_centred and not self.causal:
            raise ValueError(
                f"{type(self.control).__name__} without `source_dim` sees the tokens around each "
                "query of `x`; set `source_dim` in the constructor to give it a `source`."
            )

    def _check_shared(self, control: Control) -> None:
        """Raises ValueError where a control made for another layer does not fit this one."""
        name = type(control).__name__
        if not control.can_tie:
            raise ValueError(f"layers cannot share {name}; give its name instead.")
        if self.causal and control.causal_refusal:
            raise ValueError(f"{name} has no causal form: {control.causal_refusal}.")
        if self.is_cross and control.is_centred:
            raise ValueError(
                f"a {name} of encoder attention is centred on its query; cross attention needs "
                "one of its own."
            )
        if control.can_centre and not (control.is_centred or self.is_cross or self.causal):
            raise ValueError(
                f"a {name} of causal or cross attention sees the last tokens alone; encoder "
                "attention needs one of its own."
            )

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, causal={self.causal}"
