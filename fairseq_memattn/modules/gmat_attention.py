"""GMAT in the place of fairseq's `MultiheadAttention`: tokens, and a global memory before them."""

from dataclasses import dataclass

import torch
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from fairseq_memattn.attention.ops.global_memory.chunked import (
    attend_to_all,
    global_memory_attention,
    window_memory_attention,
)
from fairseq_memattn.attention.ops.lsh.chunked import lsh_memory_attention
from fairseq_memattn.attention.ops.window.chunked import Window

SPARSITIES = ("chunks", "lsh", "window")


@dataclass(frozen=True)
class Sparsity:
    """What tokens see of one another; the memory they see whole.

    kind: of `SPARSITIES`
    chunk: C, tokens of a chunk; with lsh, of one of the sequence sorted by bucket
    window: with window, tokens on either side of each
    rounds, buckets: with lsh, of hashing; seed: with lsh, of the rotations in evaluation
    """

    kind: str = "chunks"
    chunk: int = 512
    window: int = 256
    rounds: int = 8
    buckets: int = 16
    seed: int = 0

    def attend(
        self,
        tokens: tuple[Tensor, ...],
        memory: tuple[Tensor, ...],
        padding: Tensor | None,
        dropout: float,
        training: bool,
    ) -> tuple[Tensor, Tensor]:
        """Equation 3 for q, k, v (B, H, S, D), with lsh qk, v, and q, k, v (B, H, M, D)."""
        if self.kind == "chunks":
            return global_memory_attention(
                *tokens,
                *memory,
                chunk_size=self.chunk,
                key_padding_mask=padding,
                dropout=dropout,
            )
        if self.kind == "window":
            return window_memory_attention(
                *tokens,
                *memory,
                window=Window(2 * self.window + 1),
                key_padding_mask=padding,
                dropout=dropout,
            )
        # Other rotations at every step of training; in evaluation always the same ones.
        generator = None if training else torch.Generator().manual_seed(self.seed)
        return lsh_memory_attention(
            *tokens,
            *memory,
            chunk_size=self.chunk,
            rounds=self.rounds,
            buckets=self.buckets,
            generator=generator,
            key_padding_mask=padding,
            dropout=dropout,
        )


class GMATAttention(nn.Module):
    """Equation 3 with its projections, as an encoder's self-attention.

    embed_dim: E; num_heads: H; slots: M, how many of the states that come in are the memory's
    own: the projections of the attention that updates the memory (section 3.2), "qkv" or "qkvo",
        of which it has keys and values of tokens and of memory alike; "" where it shares them all
        with the attention that updates tokens
    dropout: of the attention weights

    With lsh a key is its query's direction, so there is no `k_proj`; the memory's keys are its
    queries' too, but for those of its own.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        slots: int,
        sparsity: Sparsity,
        *,
        own: str = "",
        dropout: float = 0.0,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.slots, self.sparsity, self.dropout = slots, sparsity, dropout

        def projection(name: str) -> nn.Module:
            """As fairseq initialises those of its own attention."""
            linear = nn.Linear(embed_dim, embed_dim)
            nn.init.xavier_uniform_(linear.weight, gain=1.0 if name == "o" else 2**-0.5)
            if name == "o":
                nn.init.zeros_(linear.bias)
            made: nn.Module = quant_noise(linear, q_noise, qn_block_size)
            return made

        self.q_proj, self.v_proj, self.out_proj = (projection(name) for name in "qvo")
        self.k_proj = None if sparsity.kind == "lsh" else projection("k")
        self.memory_proj = nn.ModuleDict({name: projection(name) for name in own})

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """query: (M + S, B, E), the memory first; S may be 0: then the memory sees itself alone.

        key_padding_mask: (B, S), of the tokens, True at padding; with chunks, on the right
        The other arguments are those of fairseq's encoder layer, which gives key and value as the
        query and no `attn_mask`.

        Returns (M + S, B, E), and None for the weights, which are never kept.
        """
        memory, tokens = query[: self.slots], query[self.slots :]
        dropout = self.dropout if self.training else 0.0
        readers = memory[:0] if self.memory_proj else memory
        q = self.heads(self.q_proj(readers))
        k = self.heads((self.k_proj or self.q_proj)(memory))
        v = self.heads(self.v_proj(memory))
        if not len(tokens):
            nothing = k[:, :, :0]
            out = attend_to_all(q, nothing, nothing, k, v, dropout=dropout)
            return self.out_proj(self.joined(out)), None
        projections = (self.q_proj, self.k_proj, self.v_proj)
        of_tokens = tuple(self.heads(project(tokens)) for project in projections if project)
        out, out_mem = self.sparsity.attend(
            of_tokens, (q, k, v), key_padding_mask, dropout, self.training
        )
        updated = self.out_proj(self.joined(out_mem))
        if self.memory_proj:
            updated = self._by_itself(memory, tokens, key_padding_mask, dropout)
        return torch.cat([updated, self.out_proj(self.joined(out))]), None

    def _by_itself(
        self, memory: Tensor, tokens: Tensor, padding: Tensor | None, dropout: float
    ) -> Tensor:
        """Equation 3, on the right, with projections of its own: (M, B, E)."""
        own = dict(self.memory_proj.items())
        q, k_mem, v_mem = (self.heads(own[name](memory)) for name in "qkv")
        k, v = (self.heads(own[name](tokens)) for name in "kv")
        out = attend_to_all(q, k, v, k_mem, v_mem, padding, dropout=dropout)
        updated: Tensor = own.get("o", self.out_proj)(self.joined(out))
        return updated

    def heads(self, x: Tensor) -> Tensor:
        """(T, B, E) as (B, H, T, D)."""
        return x.unflatten(2, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3)

    def joined(self, x: Tensor) -> Tensor:
        """(B, H, T, D) as (T, B, E)."""
        return x.permute(2, 0, 1, 3).flatten(2)
