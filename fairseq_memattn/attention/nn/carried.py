"""Memories that a decoder carries from sentence to sentence of a document.

Our extension of ABC (Peng et al., "ABC: Attention with Bounded-memory Control"); the equations are
in `fairseq_memattn.attention.ops.carry`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from fairseq_memattn.attention.ops.carry import Carry
from fairseq_memattn.attention.ops.common import accumulation_dtype

GATES = ("none", "decay", "sentence", "first")
# The first gates of the slots are spread evenly between these logits. By 4, a slot keeps 0.98 of
# the mass of the sentence before; by -4, a slot begins each sentence almost empty.
FIRST_LOGITS = (-4.0, 6.0)
ONE_LOGIT = 2.0  # of a head with one gate, as in the code of Wu et al. (2022)


class DocumentMemory(NamedTuple):
    """The memories of a decoder after some sentences of B documents, by layer.

    causal: of the translations; cross: of the sources. Either is () if its attention is softmax.
    The size does not depend on the number of sentences.
    """

    causal: tuple[Any, ...]
    cross: tuple[Any, ...]

    def reorder(self, new_order: Tensor) -> "DocumentMemory":
        """The memories of some documents. new_order: (B',) indices of documents"""
        return DocumentMemory(*(tuple(x.reorder(new_order) for x in side) for side in self))

    def rows(self) -> list["DocumentMemory"]:
        """The memory of each document, which are views of this one."""
        count = len((*self.causal, *self.cross)[0][0])
        return [self._part(slice(i, i + 1)) for i in range(count)]

    def _part(self, rows: slice) -> "DocumentMemory":
        sides = ((type(state)(*(x[rows] for x in state)) for state in side) for side in self)
        return DocumentMemory(*map(tuple, sides))

    @classmethod
    def stacked(cls, memories: Sequence["DocumentMemory"]) -> "DocumentMemory":
        """The documents of several memories as one batch, in this order."""
        sides = (zip(*side, strict=True) for side in zip(*memories, strict=True))
        return cls(
            *(
                tuple(type(s[0])(*map(torch.cat, zip(*s, strict=True))) for s in layers)
                for layers in sides
            )
        )


class SentenceGate(nn.Module):
    """log g (B, heads, M), by which a sentence fades the memory of the sentences before it.

    "decay": g = sigmoid(b), a learned number for each slot
    "sentence": g = sigmoid(W x + b), with the mean x of the sentence's encoder outputs
    "first": likewise, but with causal attention's input x at the sentence's first token, as in Wu
        et al. ("Modeling Context With Linear Attention for Scalable Document-Level Translation",
        2022), whose linear attention has one gate a head

    Our choice: W is zero at first, and the first b of the slots are spread, so that some slots keep
    to the sentence and others hold the document.

    source_dim: size of x; kind: of `GATES`, but not "none"
    """

    def __init__(self, source_dim: int, heads: int, slots: int, kind: str) -> None:
        super().__init__()
        self.heads, self.slots, self.kind = heads, slots, kind
        first = torch.linspace(*FIRST_LOGITS, slots) if slots > 1 else torch.full((1,), ONE_LOGIT)
        self.bias = nn.Parameter(first[:slots].repeat(heads))
        self.weight = None
        if kind != "decay":
            self.weight = nn.Parameter(torch.zeros(heads * slots, source_dim))

    def forward(self, source: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """source: (B, S, source_dim); key_padding_mask: (B, S), True at padding."""
        logits = self.bias.to(accumulation_dtype(self.bias)).expand(len(source), -1)
        if self.weight is not None:
            logits = logits + nn.functional.linear(_mean(source, key_padding_mask), self.weight)
        return logsigmoid(logits).unflatten(1, (self.heads, self.slots))

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
    log_gates: of each layer, or one for all of them, from the layer's input (B K, T, E) to
        (B K, heads, M); empty for a gate of 1
    start: the memories before the first sentence by layer, in B rows; () is empty memories

    `after` has the memories after the last sentence, by layer, in B rows.
    """

    def __init__(
        self, sentences: int, log_gates: Sequence[Callable[[Tensor], Tensor]], start: Sequence[Any]
    ) -> None:
        self.sentences, self.log_gates, self.start = sentences, log_gates, start
        self.after: dict[int, Any] = {}

    def of(self, layer: int, x: Tensor) -> Carry:
        """What the sentences of a layer begin with. x: (B K, T, E), the layer's input"""
        gates = self.log_gates
        log_gate = gates[layer % len(gates)](x) if gates else None
        return Carry(self.sentences, log_gate, self.start[layer] if self.start else None)
