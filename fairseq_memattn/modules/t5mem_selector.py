"""T5Mem's sequence selector, and the decoder's cross attention over what it selects.

Source: Al Adel and Burtsev, "Memory transformer with hierarchical attention for long document
processing" (T5Mem), sections III-B and III-C, equations 3 to 5.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.ops.mixture.attention import (
    mixture_read,
    mixture_write,
    select_sequences,
)
from fairseq_memattn.modules.incremental import IncrementalState, Remembering
from fairseq_memattn.modules.t5_layers import T5Projections, linear
from fairseq_memattn.modules.t5mem_layers import T5MemSizes

# Of the selection, before anything is learned, where two context sequences are present.
WRITTEN = 0.9


class T5MemSelector(Remembering):
    """Weighs the K sequences for every target token: equation 3, and the W^sent of equation 4.

    The paper's query comes from the decoder's output, which comes from the query: here it is the
    embedded previous token, and one selection serves all layers, or the states that each layer's
    cross attention takes, and each has its own (a choice, as is that they share the weights).

    One number a distance is added to the logits: a choice. The distance is that from the sequence
    whose target is being written, which is the current one, or one of its context while the
    target's context is. Only by its place can that sequence be told from the others, and only so
    can a token that says nothing about where to look prefer it. It begins with most of the
    selection, so that what was learned from single sequences goes on to hold with context.
    """

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__()
        self.by_layer = sizes.selector_query == "layer"
        size, width = sizes.embed_dim, sizes.slots * sizes.source_dim
        # Logits are unscaled sums over all of a slot: with these they begin at about unit size.
        self.q_proj = linear(size, width, (size * width) ** -0.5)
        self.k_proj = linear(sizes.source_dim, sizes.source_dim, sizes.source_dim**-0.5)
        self.sentence_proj = linear(sizes.source_dim, sizes.source_dim, sizes.source_dim**-0.5)
        # From the sequences that follow the one in question to those before it.
        self.distance_bias = nn.Parameter(torch.zeros(2 * sizes.sequences - 1))
        middle = self.distance_bias[sizes.sequences - 1 : sizes.sequences]
        nn.init.constant_(middle, math.log(2 * WRITTEN / (1 - WRITTEN)))

    def forward(
        self,
        embedded: Tensor,
        sequences: Tensor,
        slots: Tensor,
        padding: Tensor,
        ahead: Tensor,
        incremental_state: IncrementalState | None = None,
    ) -> "Selected":
        """embedded: (B, T, E), the previous tokens; sequences: (B, K, S, E); slots: (B, K, M, E);
        padding: (B, K, S); ahead: (B, T), how many sentences of the target are still to follow
        the one that a token belongs to.

        Slots and sequences are projected once, at the first step of decoding.
        """
        bias = self.bias(slots.shape[1], ahead)
        kept = self.remembered(incremental_state)
        if kept is None:
            kept = (self.k_proj(slots).flatten(2), padding.all(dim=2))
            self.remember(incremental_state, kept)
            selected = Selected(self, bias, *kept, self.sentence_proj(sequences), padding)
        else:
            selected = Selected(self, bias, *kept)
        if not self.by_layer:
            selected.weights_for(embedded)
        return selected

    def bias(self, sequences: int, ahead: Tensor) -> Tensor:
        """ahead: (B, T). Returns (B, T, K), for sequences whose current one comes last."""
        before_current = torch.arange(sequences - 1, -1, -1, device=ahead.device)
        distance = before_current - ahead.unsqueeze(2)
        middle = len(self.distance_bias) // 2
        # A target context that is longer than the source's is as far as the table goes.
        return self.distance_bias[(distance + middle).clamp(min=0)]


@dataclass
class Selected:
    """What the decoder's layers attend to.

    bias: (B, T, K), of the selector's logits
    key, absent: (B, K, M E) and (B, K), of the slots
    sentences, padding: (B, K, S, E) and (B, K, S), None after the first step of decoding
    weights: (B, T, K) each, in the order in which they were made: one for all layers, or one a
        layer
    """

    selector: T5MemSelector
    bias: Tensor
    key: Tensor
    absent: Tensor
    sentences: Tensor | None = None
    padding: Tensor | None = None
    weights: list[Tensor] = field(default_factory=list)

    def weights_for(self, query: Tensor) -> Tensor:
        """Of a layer whose states are query (B, T, E), or, at first, of the embedded tokens."""
        if self.selector.by_layer or not self.weights:
            projected = self.selector.q_proj(query)
            weights = select_sequences(projected, self.key, self.absent, bias=self.bias)
            self.weights.append(weights)
        return self.weights[-1]


class T5MemCrossAttention(T5Projections):
    """Attention of every target token to its own mixture of the sequences: equations 4 and 5."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__(sizes, sizes.source_dim)

    def forward(
        self, x: Tensor, source: Selected, incremental_state: IncrementalState | None = None
    ) -> Tensor:
        """x: (B, T, E). Keys and values are projected once, at the first step of decoding."""
        state = self.remembered(incremental_state)
        if state is None:
            k, v = (self.split(f(source.sentences)) for f in (self.k_proj, self.v_proj))
            state = mixture_write(k, v, source.padding)
            self.remember(incremental_state, state)
        q, weights = self.split(self.q_proj(x)), source.weights_for(x)
        return self.joined(mixture_read(q, weights, state, dropout=self.dropout))
