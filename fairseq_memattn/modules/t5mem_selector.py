"""T5Mem's sequence selector, and the decoder's cross attention over what it selects.

Source: Al Adel and Burtsev, "Memory transformer with hierarchical attention for long document
processing" (T5Mem), sections III-B and III-C, equations 3 to 5.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.ops.mixture.attention import (
    SelectorState,
    mixture_read,
    mixture_write,
    select_sequences,
)
from fairseq_memattn.modules.incremental import IncrementalModule, IncrementalState
from fairseq_memattn.modules.t5_layers import T5Projections, linear
from fairseq_memattn.modules.t5mem_layers import T5MemSizes

# The initial weight of the sequence that is being translated, beside two sequences of context.
INITIAL_SHARE = 0.9


class T5MemSelector(IncrementalModule):
    """Weighs the K sequences for every target token: equation 3, and the W^sent of equation 4.

    The paper computes the query from the decoder's output, which depends on the query. Here the
    query is the embedded previous token, with one selection for all layers, or each layer's
    self-attention output, with a selection for each layer (a choice, as is that the layers share
    the selector's weights).

    A learned bias for each distance is added to the logits (a choice). The distance is counted from
    the sequence whose translation is being written: the current sequence or, while the target's
    context is being written, the sequence of the context that it translates. The position is all
    that distinguishes this sequence from the others, and lets a token without information about the
    source prefer it. Its initial weight is high, so that a model trained on single sequences keeps
    working when context is added.
    """

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__()
        self.by_layer = sizes.selector_query == "layer"
        size, width = sizes.embed_dim, sizes.slots * sizes.source_dim
        # Logits are unscaled sums over a whole slot. This deviation gives them unit variance.
        self.q_proj = linear(size, width, (size * width) ** -0.5)
        self.k_proj = linear(sizes.source_dim, sizes.source_dim, sizes.source_dim**-0.5)
        self.sentence_proj = linear(sizes.source_dim, sizes.source_dim, sizes.source_dim**-0.5)
        # From the sequences after the one that is being translated to those before it.
        self.distance_bias = nn.Parameter(torch.zeros(2 * sizes.sequences - 1))
        middle = self.distance_bias[sizes.sequences - 1 : sizes.sequences]
        nn.init.constant_(middle, math.log(2 * INITIAL_SHARE / (1 - INITIAL_SHARE)))

    def forward(
        self,
        embedded: Tensor,
        sequences: Tensor,
        slots: Tensor,
        padding: Tensor,
        ahead: Tensor,
        incremental_state: IncrementalState | None = None,
    ) -> "Selected":
        """embedded: (B, T, E), the previous tokens
        sequences, slots: (B, K, S, E) and (B, K, M, E), projected once, at the first step of
            decoding
        padding: (B, K, S), True at padding
        ahead: (B, T), how many sentences of the target follow the sentence of a token
        """
        bias = self.bias(slots.shape[1], ahead)
        state, sentences = self.saved_state(incremental_state), None
        if state is None:
            state = SelectorState(self.k_proj(slots).flatten(2), padding.all(dim=2))
            self.save_state(incremental_state, state)
            sentences = self.sentence_proj(sequences)
        weights = None if self.by_layer else self.select(embedded, state, bias)
        return Selected(self, state, bias, sentences, padding, weights)

    def select(self, query: Tensor, state: SelectorState, bias: Tensor) -> Tensor:
        """Equation 3. query: (B, T, E); bias: (B, T, K). Returns the weights (B, T, K)."""
        return select_sequences(self.q_proj(query), *state, bias=bias)

    def bias(self, sequences: int, ahead: Tensor) -> Tensor:
        """ahead: (B, T). Returns (B, T, K), for K sequences of which the current one is last."""
        before_current = torch.arange(sequences - 1, -1, -1, device=ahead.device)
        distance = before_current - ahead.unsqueeze(2)
        middle = len(self.distance_bias) // 2
        # A target context longer than the source's gets the last entry of the table.
        return self.distance_bias[(distance + middle).clamp(min=0)]


@dataclass(frozen=True)
class Selected:
    """What the cross attention of the decoder's layers reads.

    state: the projected slots
    bias: (B, T, K), of the selector's logits
    sentences: (B, K, S, E), the projected sequences; None after the first step of decoding
    padding: (B, K, S), True at padding
    weights: (B, T, K), for all layers; None where each layer has its own
    """

    selector: T5MemSelector
    state: SelectorState
    bias: Tensor
    sentences: Tensor | None
    padding: Tensor
    weights: Tensor | None

    def weights_for(self, query: Tensor) -> Tensor:
        """The weights (B, T, K) of a layer whose self-attention output is query (B, T, E)."""
        if self.weights is not None:
            return self.weights
        return self.selector.select(query, self.state, self.bias)


class T5MemCrossAttention(T5Projections):
    """Attention of every target token to its own mixture of the sequences: equations 4 and 5."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__(sizes, sizes.source_dim)

    def forward(
        self, x: Tensor, source: Selected, incremental_state: IncrementalState | None = None
    ) -> tuple[Tensor, Tensor]:
        """x: (B, T, E). Keys and values are projected once, at the first step of decoding.

        Returns (B, T, E), and the selection's weights (B, T, K).
        """
        state = self.saved_state(incremental_state)
        if state is None:
            k, v = (self.split(f(source.sentences)) for f in (self.k_proj, self.v_proj))
            state = mixture_write(k, v, source.padding)
            self.save_state(incremental_state, state)
        q, weights = self.split(self.q_proj(x)), source.weights_for(x)
        return self.joined(mixture_read(q, weights, state, dropout=self.dropout)), weights
