"""GMAT's attention layer: tokens attend sparsely to one another and densely to a global memory.

Source: Gupta and Berant, "GMAT: Global Memory Augmentation for Transformers", section 2,
equation 3, and section 3.2 for projections of the memory's own.
"""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.nn.dropout import AttentionDropout
from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.blocks import reorder, tokens_first
from fairseq_memattn.attention.ops.common import unit_vectors
from fairseq_memattn.attention.ops.global_memory.chunked import (
    attend_to_all,
    global_memory_attention,
    window_memory_attention,
)
from fairseq_memattn.attention.ops.lsh.chunked import lsh_memory_attention
from fairseq_memattn.attention.ops.window.chunked import Window

# The options that each sparsity has.
SPARSITIES = {
    "chunks": ("chunk_size",),
    "lsh": ("chunk_size", "rounds", "buckets", "seed"),
    "window": ("window",),
}
MEMORY_PROJECTIONS = ("", "qkv", "qkvo")


@dataclass(frozen=True)
class Sparsity:
    """Which tokens a token attends to. Every token attends to the whole memory as well.

    kind: one of `SPARSITIES`
    chunk_size: C, the tokens of a chunk; with "lsh", of a chunk of the sorted sequence. None is
        64 with "lsh", as in Reformer, and 512 otherwise
    window: with "window", the tokens on either side
    rounds: with "lsh", the rounds of hashing
    buckets: with "lsh", the buckets of each round, an even number. None is 2 S / C, which depends
        on the longest sequence in the batch
    seed: with "lsh", of the rotations in evaluation

    Raises ValueError for a value out of range, whether or not the kind uses it.
    """

    kind: str = "chunks"
    chunk_size: int | None = None
    window: int = 256
    rounds: int = 8
    buckets: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in SPARSITIES:
            raise ValueError(
                f"`sparsity` must be one of {', '.join(SPARSITIES)}, but is {self.kind} instead."
            )
        least = {"chunk_size": 1, "window": 0, "rounds": 1, "buckets": 2}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None:
                check.integer(name, value)
                check.least(smallest, **{name: value})
        if self.buckets is not None and self.buckets % 2:
            raise ValueError(f"`buckets` must be even, but is {self.buckets} instead.")

    @property
    def size(self) -> int:
        """C, with its default."""
        if self.chunk_size is not None:
            return self.chunk_size
        return 64 if self.kind == "lsh" else 512

    def attend(
        self,
        tokens: tuple[Tensor, ...],
        memory: tuple[Tensor, ...],
        key_padding_mask: Tensor | None,
        dropout: float,
        training: bool,
    ) -> tuple[Tensor, Tensor]:
        """Equation 3.

        tokens: q, k, v (B, H, S, D); with "lsh" qk, v
        memory: q, k, v (B, H, M, D)
        key_padding_mask: (B, S), True at padding; with "chunks", padding is on the right
        training: with "lsh", whether the rotations are drawn anew

        Returns the readings of the tokens (B, H, S, D) and of the memory (B, H, M, D).
        """
        inputs = (*tokens, *memory)
        options: dict[str, Any] = {"key_padding_mask": key_padding_mask, "dropout": dropout}
        if self.kind == "chunks":
            return global_memory_attention(*inputs, chunk_size=self.size, **options)
        if self.kind == "window":
            return window_memory_attention(*inputs, window=Window(2 * self.window + 1), **options)
        return lsh_memory_attention(
            *inputs,
            chunk_size=self.size,
            rounds=self.rounds,
            buckets=self.buckets,
            generator=None if training else torch.Generator().manual_seed(self.seed),
            **options,
        )


class GlobalMemoryAttention(AttentionDropout):
    """Self-attention of a sequence and a global memory, in time and memory linear in S.

    Tokens attend to nearby tokens and to the memory, the memory attends to itself and to all
    tokens (equation 3). Information travels between distant tokens through the memory alone. The
    memory goes from layer to layer beside the tokens; its first value, and dropping the tokens in
    order to compress a sequence, are the model's. Any number of memory vectors M fits the weights.

    embed_dim: E; num_heads: H
    sparsity: which tokens a token attends to
        "chunks" those of its own chunk of `chunk_size` contiguous tokens
        "window" itself and `window` tokens on either side
        "lsh" those it meets by locality-sensitive hashing (Reformer), in `rounds` rounds of
            `buckets` buckets and chunks of `chunk_size`. Keys are normalised queries, so there is
            no key projection. Training draws new rotations at every call from PyTorch's default
            generator; evaluation uses those of `seed`
    chunk_size, window, rounds, buckets, seed: see `Sparsity`
    memory_projections: the projections of the attention that updates the memory, which the
        attention that updates the tokens does not share: "" none, "qkv", or "qkvo" with the output
        projection (section 3.2)
    dropout: of the attention weights, in training
    bias: whether the projections have biases

    `torch.compile` makes a single graph of the layer, with two exceptions: "window" with a
    `key_padding_mask` on a CPU looks at the mask's values to see whether tokens must be moved, and
    "lsh" in evaluation makes a `torch.Generator`, which a graph cannot hold. The graph breaks
    there.

    Raises ValueError for options out of range, and for those of another `sparsity`.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        sparsity: str = "chunks",
        chunk_size: int | None = None,
        window: int = 256,
        rounds: int = 8,
        buckets: int | None = None,
        seed: int = 0,
        memory_projections: str = "",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check.heads(embed_dim, num_heads)
        check.dropout(dropout)
        if memory_projections not in MEMORY_PROJECTIONS:
            raise ValueError(
                '`memory_projections` must be "", "qkv" or "qkvo", '
                f'but is "{memory_projections}" instead.'
            )
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.sparsity = Sparsity(sparsity, chunk_size, window, rounds, buckets, seed)
        self._check_unused(self.sparsity)

        def projection(name: str) -> nn.Linear:
            """Initialised as in fairseq's multi-head attention."""
            linear = nn.Linear(embed_dim, embed_dim, bias=bias)
            nn.init.xavier_uniform_(linear.weight, gain=1.0 if name == "o" else 2**-0.5)
            if name == "o" and bias:
                nn.init.zeros_(linear.bias)
            return linear

        self.q_proj, self.v_proj, self.out_proj = (projection(name) for name in "qvo")
        self.k_proj = None if sparsity == "lsh" else projection("k")
        self.memory_proj = nn.ModuleDict({name: projection(name) for name in memory_projections})

    def forward(
        self, x: Tensor, memory: Tensor, *, key_padding_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """x: (B, S, E), of any length. With S = 0 the memory attends to itself alone.
        memory: (B, M, E); M may be 0
        key_padding_mask: (B, S), True at padding, which may be anywhere: chunks are cut from the
            tokens, not from the columns, so that padding on the left changes no result

        Returns the updated x (B, S, E), whose values at padding are undefined, and the updated
        memory (B, M, E).

        Raises ValueError for shapes that do not fit.
        """
        self._check(x, memory, key_padding_mask)
        # One chunk has no boundaries that padding could move.
        is_cut = self.sparsity.kind == "chunks" and self.sparsity.size < x.shape[1]
        if key_padding_mask is None or not is_cut:
            return self.attend(x, memory, key_padding_mask)
        order = tokens_first(key_padding_mask)
        mask = reorder(key_padding_mask, order)
        x, memory = self.attend(reorder(x, order), memory, mask)
        return reorder(x, order.argsort(dim=1)), memory

    def attend(
        self, x: Tensor, memory: Tensor, key_padding_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """`forward` without its checks, for padding that is on the right where chunks are cut."""
        dropout = self.drop_rate
        # The tokens read the memory by these projections, whoever updates it.
        k, v = self.split((self.k_proj or self.q_proj)(memory)), self.split(self.v_proj(memory))
        q = k[:, :, :0] if self.memory_proj else self.split(self.q_proj(memory))
        if x.shape[1]:
            projections = (self.q_proj, self.k_proj, self.v_proj)
            tokens = tuple(self.split(project(x)) for project in projections if project)
            out, out_memory = self.sparsity.attend(
                tokens, (q, k, v), key_padding_mask, dropout, self.training
            )
            updated_x = self.join(out)
        else:
            updated_x = self.out_proj(x)  # empty, in the dtype of autocast
            keys = unit_vectors(k) if self.sparsity.kind == "lsh" else k
            out_memory = attend_to_all(q, k[:, :, :0], v[:, :, :0], keys, v, dropout=dropout)
        if self.memory_proj:
            return updated_x, self._updated_memory(x, memory, key_padding_mask, dropout)
        return updated_x, self.join(out_memory)

    def _updated_memory(
        self, x: Tensor, memory: Tensor, key_padding_mask: Tensor | None, dropout: float
    ) -> Tensor:
        """Equation 3, on the right, by the memory's own projections: (B, M, E)."""
        own = dict(self.memory_proj.items())
        q, k_memory, v_memory = (self.split(own[name](memory)) for name in "qkv")
        k, v = (self.split(own[name](x)) for name in "kv")
        mask = key_padding_mask if x.shape[1] else None
        out = attend_to_all(q, k, v, k_memory, v_memory, mask, dropout=dropout)
        return own.get("o", self.out_proj)(self.joined(out))

    def _check_unused(self, sparsity: Sparsity) -> None:
        used = SPARSITIES[sparsity.kind]
        for option in fields(Sparsity)[1:]:
            value = getattr(sparsity, option.name)
            if option.name not in used and value != option.default:
                raise ValueError(
                    f"`{option.name}` must be left out with `sparsity` {sparsity.kind!r}, whose "
                    f"options are {', '.join(used)}, but is {value} instead."
                )

    def _check(self, x: Tensor, memory: Tensor, key_padding_mask: Tensor | None) -> None:
        check.instance("x", x, Tensor)
        check.instance("memory", memory, Tensor)
        check.shape("x", x, ("B", "S", self.embed_dim))
        check.shape("memory", memory, (x.shape[0], "M", x.shape[2]))
        check.mask("key_padding_mask", key_padding_mask, (x.shape[0], x.shape[1]))
