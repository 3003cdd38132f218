"""T5Mem: its decoders with and without the sequence selector, and the whole network.

Source: Al Adel and Burtsev, "Memory transformer with hierarchical attention for long document
processing" (T5Mem), sections III-B and III-C, equations 3 to 5; for `T5MemSlotDecoder`, section 5
of its study on masked language modelling and question answering.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.ops.mixture import (
    MixtureState,
    SelectorState,
    mixture_read,
    mixture_write,
    select_sequences,
)
from fairseq_memattn.networks.t5 import T5, Encoded, T5Decoder, T5State
from fairseq_memattn.networks.t5_layers import Projection, T5Embedding, T5Projections
from fairseq_memattn.networks.t5mem_encoder import T5MemEncoder, T5MemSizes

# The initial weight of the sequence that is being translated, beside two sequences of context.
INITIAL_SHARE = 0.9


class T5MemSelector(nn.Module):
    """Weighs the K sequences for every target token: equation 3, and the W^sent of equation 4.

    The paper computes the query from the decoder's output, which depends on the query. Here the
    query is the embedded previous token, with one selection for all layers, or each layer's
    self-attention output, with a selection for each layer (a choice, as is that the layers share
    the selector's weights).

    Unless `selector_bias` is "none", as in the paper, a learned bias for each distance is added to
    the logits. The distance is counted from the sequence whose translation is being written: the
    current sequence or, while the target's context is being written, the sequence of the context
    that it translates. A token without information about the source can so prefer this sequence.
    Its initial weight is high, so that a model trained on single sequences keeps working when
    context is added.
    """

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__()
        self.by_layer = sizes.selector_query == "layer"
        size, source_dim = sizes.embed_dim, sizes.source_dim or sizes.embed_dim
        width = sizes.slots * source_dim
        # Logits are unscaled sums over a whole slot. This deviation gives them unit variance.
        self.q_proj = Projection(size, width, (size * width) ** -0.5)
        self.k_proj = Projection(source_dim, source_dim, source_dim**-0.5)
        self.sentence_proj = Projection(source_dim, source_dim, source_dim**-0.5)
        # From the sequences after the one that is being translated to those before it.
        self.distance_bias: nn.Parameter | None = None
        if sizes.selector_bias == "distance":
            self.distance_bias = nn.Parameter(torch.empty(2 * sizes.sequences - 1))
        self.draw()

    def draw(self) -> None:
        if self.distance_bias is None:
            return
        nn.init.zeros_(self.distance_bias)
        middle = len(self.distance_bias) // 2
        odds = 2 * INITIAL_SHARE / (1 - INITIAL_SHARE)
        nn.init.constant_(self.distance_bias[middle : middle + 1], math.log(odds))

    def write(self, slots: Tensor, padding: Tensor) -> SelectorState:
        """slots: (B, K, M, E); padding: (B, K, S), True at padding."""
        return SelectorState(self.k_proj(slots).flatten(2), padding.all(dim=2))

    def select(self, query: Tensor, state: SelectorState, bias: Tensor | None) -> Tensor:
        """Equation 3. query: (B, T, E); bias: of `bias`. Returns the weights (B, T, K)."""
        return select_sequences(self.q_proj(query), *state, bias=bias)

    def bias(self, sequences: int, ahead: Tensor) -> Tensor | None:
        """The bias (B, T, K) of the logits, for K sequences of which the current one is last.

        ahead: (B, T), how many sentences of the target follow the sentence of a token
        """
        if self.distance_bias is None:
            return None
        before_current = torch.arange(sequences - 1, -1, -1, device=ahead.device)
        distance = before_current - ahead.unsqueeze(2)
        middle = len(self.distance_bias) // 2
        # A target context longer than the source's gets the last entry of the table.
        return self.distance_bias[(distance + middle).clamp(min=0)]


class T5MemCrossAttention(T5Projections):
    """Attention of every target token to its own mixture of the sequences: equations 4 and 5."""

    def __init__(self, sizes: T5MemSizes) -> None:
        super().__init__(sizes, sizes.source_dim)

    def write(self, sentences: Tensor, visible: Tensor) -> MixtureState:
        """The keys and values of sentences (B, K, S, E). visible: (B, K, S), False at padding."""
        return mixture_write(*self.keys_and_values(sentences), ~visible)

    def restored(self, keys: Tensor, values: Tensor, visible: Tensor) -> MixtureState:
        """What `write` returned, from its keys and values (B, H, S, K D)."""
        return MixtureState(keys, values, visible.to(keys.dtype))

    def forward(
        self,
        x: Tensor,
        memory: MixtureState | None,
        weights: Tensor | None,
        selector: T5MemSelector,
        key: Tensor,
        absent: Tensor,
        bias: Tensor | None,
        *source: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """x: (B, T, E); memory: what `write` returned; None if the source is given

        weights: (B, T, K), of the selector, for all layers; None where each layer has its own. The
            arguments after it are those of `T5MemSelector.select`
        source: the arguments of `write`

        Returns (B, T, E), and the selection's weights (B, T, K).
        """
        if memory is None:
            memory = self.write(*source)
        if weights is None:
            weights = selector.select(x, SelectorState(key, absent), bias)
        read = mixture_read(self.split(self.q_proj(x)), weights, memory, dropout=self.drop_rate)
        return self.join(read), weights


class T5MemDecoder(T5Decoder):
    """T5's decoder whose layers attend to mixtures of the sequences that a selector weighs."""

    sizes: T5MemSizes

    def __init__(self, sizes: T5MemSizes, embed_tokens: T5Embedding | None = None) -> None:
        super().__init__(sizes, embed_tokens)
        self.selector = T5MemSelector(sizes)

    def build_cross_attention(self) -> nn.Module:
        return T5MemCrossAttention(self.sizes)

    def source(self, encoded: Encoded) -> Tensor:
        return self.selector.sentence_proj(encoded.states)

    def selected(self, encoded: Encoded) -> SelectorState:
        assert encoded.slots is not None
        return self.selector.write(encoded.slots, encoded.padding)

    def selection(self, tokens: Tensor, x: Tensor, state: T5State) -> tuple[Any, ...]:
        assert state.selector is not None
        ahead = torch.zeros_like(tokens)
        if state.ahead is not None:
            ahead = (state.ahead.unsqueeze(1) - self._ended(tokens)).clamp(min=0)
        bias = self.selector.bias(state.selector.key.shape[1], ahead)
        weights = None if self.selector.by_layer else self.selector.select(x, state.selector, bias)
        return weights, self.selector, *state.selector, bias

    def ahead_after(self, tokens: Tensor, state: T5State) -> Tensor | None:
        return None if state.ahead is None else state.ahead - self._ended(tokens)[:, -1]

    def reported(self, weights: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(weights if self.selector.by_layer else weights[:1])

    def _ended(self, tokens: Tensor) -> Tensor:
        """(B, T), how many sentences of the target end at tokens up to each."""
        if self.sizes.separator is None:
            return torch.zeros_like(tokens)
        return tokens.eq(self.sizes.separator).cumsum(dim=1)


class T5MemSlotDecoder(T5Decoder):
    """T5's decoder over the concatenated slots: T5Mem without a selector (T5MemWs)."""

    def source(self, encoded: Encoded) -> Tensor:
        assert encoded.slots is not None
        return encoded.slots.flatten(1, 2)

    def visible(self, encoded: Encoded) -> Tensor:
        assert encoded.slots is not None
        present = ~encoded.padding.all(dim=2)
        return present.repeat_interleave(encoded.slots.shape[2], dim=1)


class T5Mem(T5):
    """T5Mem (Al Adel and Burtsev, 2021): T5 over K sequences, each with a slot of memory.

    sizes, source_sizes: `T5MemSizes` of one design; share_embeddings: see `T5`. The default sizes
    are the paper's v3, with two memory tokens as in its study
    """

    sizes_class = T5MemSizes
    encoder_class = T5MemEncoder

    @staticmethod
    def decoder_class(sizes: T5MemSizes) -> type[T5Decoder]:
        return T5MemDecoder if sizes.selector else T5MemSlotDecoder
