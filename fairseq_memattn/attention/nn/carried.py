"""Memories that a decoder carries from sentence to sentence of a document.

Our extension of ABC (Peng et al., "ABC: Attention with Bounded-memory Control"); the equations are
in `fairseq_memattn.attention.ops.carry`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from fairseq_memattn.attention.ops.carry import before_sentences, fade, merge
from fairseq_memattn.attention.ops.common import MemoryState, accumulation_dtype

GATES = ("none", "decay", "sentence")
# The first gates of the slots are spread evenly between these logits. By 4, a slot keeps 0.98 of
# the mass of the sentence before; by -4, a slot begins each sentence almost empty.
FIRST_LOGITS = (-4.0, 6.0)


class DocumentMemory(NamedTuple):
    """The memories of a decoder after some sentences of B documents, by layer.

    causal: of the translations; cross: of the sources. Either is () if its attention is softmax.
    The size does not depend on the number of sentences.
    """

    causal: tuple[MemoryState, ...]
    cross: tuple[MemoryState, ...]

    def reorder(self, new_order: Tensor) -> "DocumentMemory":
        """The memories of some documents. new_order: (B',) indices of documents"""
        return DocumentMemory(*(tuple(x.reorder(new_order) for x in side) for side in self))

    def rows(self) -> list["DocumentMemory"]:
        """The memory of each document, which are views of this one."""
        count = len((*self.causal, *self.cross)[0].keys)
        return [self._part(slice(i, i + 1)) for i in range(count)]

    def _part(self, rows: slice) -> "DocumentMemory":
        sides = ((MemoryState(*(x[rows] for x in state)) for state in side) for side in self)
        return DocumentMemory(*map(tuple, sides))

    @classmethod
    def stacked(cls, memories: Sequence["DocumentMemory"]) -> "DocumentMemory":
        """The documents of several memories as one batch, in this order."""
        sides = (zip(*side, strict=True) for side in zip(*memories, strict=True))
        return cls(
            *(
                tuple(MemoryState(*map(torch.cat, zip(*states, strict=True))) for states in layers)
                for layers in sides
            )
        )


class SentenceGate(nn.Module):
    """log g (B, heads, M), by which a sentence fades the memory of the sentences before it.

    "decay": g = sigmoid(b), a learned number for each slot
    "sentence": g = sigmoid(W x + b), with the mean x of the sentence's encoder outputs; W is zero
        at first

    Our choice: the first b of the slots are spread, so that some slots keep to the sentence and
    others hold the document.

    source_dim: size of the encoder's outputs; kind: "decay" or "sentence"
    """

    def __init__(self, source_dim: int, heads: int, slots: int, kind: str) -> None:
        super().__init__()
        self.heads, self.slots, self.kind = heads, slots, kind
        self.bias = nn.Parameter(torch.linspace(*FIRST_LOGITS, slots).repeat(heads))
        self.weight = None
        if kind == "sentence":
            self.weight = nn.Parameter(torch.zeros(heads * slots, source_dim))

    def forward(self, source: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """source: (B, S, source_dim); key_padding_mask: (B, S), True at padding."""
        logits = self.bias.to(accumulation_dtype(self.bias)).expand(len(source), -1)
        if self.weight is not None:
            logits = logits + nn.functional.linear(_mean(source, key_padding_mask), self.weight)
        log_gate: Tensor = logsigmoid(logits).unflatten(1, (self.heads, self.slots))
        return log_gate

    def extra_repr(self) -> str:
        return f"heads={self.heads}, slots={self.slots}, kind={self.kind!r}"


def _mean(source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
    """(B, source_dim), over the tokens that are no padding."""
    if key_padding_mask is None:
        return source.mean(dim=1)
    real = (~key_padding_mask).unsqueeze(2).to(source.dtype)
    # float16 does not hold sums of long sources.
    total = (source * real).sum(dim=1, dtype=accumulation_dtype(source))
    return (total / real.sum(dim=1, dtype=total.dtype).clamp(min=1)).to(source.dtype)


class CarriedMemories:
    """The memories of a stack of layers in one forward pass over K sentences of B documents.

    sentences: K
    log_gates: (B K, heads, M) of each layer, or one for all of them; empty for a gate of 1
    start: the memories before the first sentence by layer, in B rows; () is empty memories

    `after` has the memories after the last sentence, by layer, in B rows.
    """

    def __init__(
        self, sentences: int, log_gates: Sequence[Tensor], start: Sequence[MemoryState]
    ) -> None:
        self.sentences, self.log_gates, self.start = sentences, log_gates, start
        self.after: dict[int, MemoryState] = {}

    def begin(self, layer: int, written: MemoryState) -> MemoryState:
        """The memory at the beginning of each sentence, from what each sentence writes."""
        start = self.start[layer] if self.start else None
        before = before_sentences(written, self._log_gate(layer), start, self.sentences)
        last = slice(self.sentences - 1, None, self.sentences)
        states = (MemoryState(*(x[last] for x in state)) for state in (before, written))
        self.after[layer] = merge(*states)
        return before

    def faded(self) -> list[MemoryState]:
        """The memories at the beginning of one sentence for each document, by layer."""
        return [fade(state, self._log_gate(layer)) for layer, state in enumerate(self.start)]

    def _log_gate(self, layer: int) -> Tensor | None:
        return self.log_gates[layer % len(self.log_gates)] if self.log_gates else None
