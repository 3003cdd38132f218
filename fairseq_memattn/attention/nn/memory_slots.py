"""T5Mem's attention layer: sequences that exchange information through their memory slots.

Source: Al Adel and Burtsev, "Memory transformer with hierarchical attention for long document
processing" (T5Mem), sections III-A and IV, equations 2 and 6 to 14.
"""

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.nn.dropout import AttentionDropout
from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.memory_slots import mem_attention
from fairseq_memattn.attention.ops.relative_position import check_buckets, slot_position_bias

# Of T5.
BUCKETS, MAX_DISTANCE = 32, 128


class SlotPositionBias(nn.Module):
    """T5's relative position biases over a slot and its sequence (equation 8).

    One more learned number per head is the bias between a query and the slots of other sequences.

    embed_dim: E, whose E^-1/2 is the standard deviation of the first values, as in T5
    num_heads: H
    buckets: the number of buckets of distances, an even number
    max_distance: the distance from which on a side has a single bucket
    scale: the biases are the learned numbers times `scale`. Optimisers whose steps are not
        proportional to the weights, such as Adam, change the biases `scale` times as fast

    Raises ValueError for buckets and distances that `relative_position_bucket` refuses, and for
    other sizes and scales out of range.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        buckets: int = BUCKETS,
        max_distance: int = MAX_DISTANCE,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        check.sizes(embed_dim=embed_dim, num_heads=num_heads, buckets=buckets)
        check.integer("max_distance", max_distance)
        if not scale > 0:
            raise ValueError(f"`scale` must be above 0, but is {scale} instead.")
        check_buckets(bidirectional=True, buckets=buckets, max_distance=max_distance)
        self.max_distance, self.factor = max_distance, scale
        self.table = nn.Parameter(torch.empty(buckets + 1, num_heads))
        nn.init.normal_(self.table, std=embed_dim**-0.5 / scale)

    def forward(self, sequences: int, slots: int, length: int) -> Tensor:
        """The biases of K sequences of S tokens with M memory tokens each.

        Returns (K, H, M + S, K M + S), the `position_bias` of `MemorySlotAttention`.
        """
        return slot_position_bias(
            self.factor * self.table, sequences, slots, length, max_distance=self.max_distance
        )


class MemorySlotAttention(AttentionDropout):
    """MemAttention: self-attention of K sequences, each with a slot of M memory tokens.

    A token attends to its own sequence and to the slots of all sequences; so does a memory token.
    The cost is O(K (M + S) (K M + S)) in place of O((K S)^2). Queries of memory tokens and of
    tokens have separate projections, keys and values share theirs. As in T5, dot products are not
    scaled and the first weights make up for it. Any K, M and S fit the weights.

    embed_dim: E; num_heads: H
    head_dim: D; None is E / H
    separate_output: whether memory tokens have an output projection of their own (the paper's
        2Linear) or share that of tokens (1Linear)
    relative_positions: whether the layer has a `SlotPositionBias` of its own, which `forward` adds
        unless it is given a `position_bias`. In T5Mem all layers share one: give it to each of
        them, and set this to False
    buckets, max_distance: see `SlotPositionBias`; refused without `relative_positions`
    dropout: of the attention weights, in training
    bias: whether the projections have biases

    `torch.compile` makes a single graph of the layer.

    Raises ValueError for options out of range.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        separate_output: bool = True,
        relative_positions: bool = True,
        buckets: int = BUCKETS,
        max_distance: int = MAX_DISTANCE,
        dropout: float = 0.0,
        bias: bool = False,
    ) -> None:
        super().__init__()
        if head_dim is None:
            check.heads(embed_dim, num_heads)
            head_dim = embed_dim // num_heads
        check.sizes(embed_dim=embed_dim, num_heads=num_heads, head_dim=head_dim)
        check.dropout(dropout)
        for name, value, default in (
            ("buckets", buckets, BUCKETS),
            ("max_distance", max_distance, MAX_DISTANCE),
        ):
            if not relative_positions and value != default:
                raise ValueError(
                    f"`{name}` must be left out without `relative_positions`, but is {value} "
                    "instead."
                )
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        inner = num_heads * head_dim

        def projection(inputs: int, outputs: int, deviation: float) -> nn.Linear:
            linear = nn.Linear(inputs, outputs, bias=bias)
            nn.init.normal_(linear.weight, std=deviation)
            if bias:
                nn.init.zeros_(linear.bias)
            return linear

        of_queries = (embed_dim * head_dim) ** -0.5
        self.q_proj = projection(embed_dim, inner, of_queries)
        self.k_proj = projection(embed_dim, inner, embed_dim**-0.5)
        self.v_proj = projection(embed_dim, inner, embed_dim**-0.5)
        self.out_proj = projection(inner, embed_dim, inner**-0.5)
        self.slot_q_proj = projection(embed_dim, inner, of_queries)
        self.slot_out_proj = projection(inner, embed_dim, inner**-0.5) if separate_output else None
        self.position_bias = (
            SlotPositionBias(embed_dim, num_heads, buckets=buckets, max_distance=max_distance)
            if relative_positions
            else None
        )

    def forward(
        self,
        tokens: Tensor,
        memory: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """tokens: (B, K, S, E), at least one of each
        memory: (B, K, M, E), the slot of each sequence; M is at least 1
        key_padding_mask: (B, K, S), True at padding, which nothing attends to. A sequence of
            padding alone is absent, and its slot with it, so that K may differ within a batch.
            Positions count columns: padding on the right leaves the distances to the slot as they
            are, padding on the left increases them
        position_bias: (K, H, M + S, K M + S), added to the logits with all slots and, after them,
            with the own sequence; None is the layer's own, if it has one

        Returns the updated tokens (B, K, S, E) and memory (B, K, M, E). Their values at padding
        and in absent sequences are the output projection of zeros.

        Raises ValueError for shapes that do not fit.
        """
        self._check(tokens, memory, key_padding_mask, position_bias)
        count, slots, length = memory.shape[1], memory.shape[2], tokens.shape[2]
        if position_bias is None and self.position_bias is not None:
            position_bias = self.position_bias(count, slots, length)
        out = self.attend(
            torch.cat([memory, tokens], dim=2), slots, key_padding_mask, position_bias
        )
        return out[:, :, slots:], out[:, :, :slots]

    def attend(
        self, x: Tensor, slots: int, key_padding_mask: Tensor | None, position_bias: Tensor | None
    ) -> Tensor:
        """`forward` without its checks, for x (B, K, M + S, E) with the M `slots` first. As x."""
        memory, tokens = x[:, :, :slots], x[:, :, slots:]
        q = torch.cat([self.slot_q_proj(memory), self.q_proj(tokens)], dim=2)
        out = mem_attention(
            *(self.split(projected) for projected in (q, self.k_proj(x), self.v_proj(x))),
            slots=slots,
            bias=position_bias,
            key_padding_mask=key_padding_mask,
            dropout=self.drop_rate,
        )
        joined = self.joined(out)
        if self.slot_out_proj is None:
            return self.out_proj(joined)
        memory, tokens = joined[:, :, :slots], joined[:, :, slots:]
        return torch.cat([self.slot_out_proj(memory), self.out_proj(tokens)], dim=2)

    def _check(
        self,
        tokens: Tensor,
        memory: Tensor,
        key_padding_mask: Tensor | None,
        position_bias: Tensor | None,
    ) -> None:
        check.instance("tokens", tokens, Tensor)
        check.instance("memory", memory, Tensor)
        check.axes("tokens", tokens, "B", "K", "S", str(self.embed_dim))
        check.shape("tokens", tokens, ("B", "K", "S", self.embed_dim))
        batch, count, length, size = tokens.shape
        check.shape("memory", memory, (batch, count, "M", size))
        if not memory.shape[2]:
            raise ValueError("`memory` must have at least one memory token, but has 0 instead.")
        check.mask("key_padding_mask", key_padding_mask, (batch, count, length))
        if position_bias is None:
            return
        slots = memory.shape[2]
        biases = (count, self.num_heads, slots + length, count * slots + length)
        check.instance("position_bias", position_bias, Tensor)
        check.shape("position_bias", position_bias, biases)
