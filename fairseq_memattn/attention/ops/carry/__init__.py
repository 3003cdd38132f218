"""Memories that are carried from sentence to sentence of a document.

Our extension of ABC (Peng et al., "ABC: Attention with Bounded-memory Control"), whose memory is a
weighted mean: the memory of two sentences is the mean of their memories, weighted by the sums of
their alpha. At the beginning of sentence i, a gate g_i in (0, 1] for each slot multiplies the
weight of everything before it:

    before_i = g_i * after_{i-1},   after_i = before_i + written_i

where `*` multiplies the mass of a memory and `+` is `merge`. The sums of kernel attention fade and
merge likewise, and of `ops.spill`, whose sentences `Control.attend_from` reads one after another,
the slots beside the exact tokens fade.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.common import EMPTY, MemoryState, is_written, joint_mass
from fairseq_memattn.attention.ops.kernel.chunked import KernelState


class Carry(NamedTuple):
    """What rows begin with that are the K sentences of B documents, adjacent rows of a document.

    sentences: K
    log_gate: (B K, H or 1, M), of each sentence; None is a gate of 1
    start: the state before the first sentence of each document, in B rows; None is empty
    """

    sentences: int
    log_gate: Tensor | None
    start: Any


def merge(first: Any, second: Any) -> Any:
    """The memory that holds what either of two memories (B, ...) holds."""
    if isinstance(first, KernelState):
        return KernelState(*map(torch.add, first, second))
    log_mass = joint_mass(first.log_mass, second.log_mass)
    share = (second.log_mass - log_mass).exp() * is_written(second.log_mass)
    keys, values = (
        torch.lerp(old, new, share.unsqueeze(3))
        for old, new in zip(first[:2], second[:2], strict=True)
    )
    return MemoryState(keys, values, log_mass)


def fade(memory: Any, log_gate: Tensor | None) -> Any:
    """A state whose mass is multiplied by a gate. log_gate: (B, H or 1, M); None is a gate of 1"""
    if log_gate is None or memory is None:
        return memory
    if isinstance(memory, KernelState):
        gate = log_gate.exp()
        return KernelState(memory.values * gate.unsqueeze(3), memory.normaliser * gate)
    return memory._replace(log_mass=memory.log_mass + log_gate)


def before_and_after(written: Any, carry: Carry) -> tuple[Any, Any]:
    """`before_sentences`, and the memory after the last sentence of each document, in B rows."""
    sentences, log_gate, start = carry
    before = before_sentences(written, log_gate, start, sentences)
    last = slice(sentences - 1, None, sentences)
    return before, merge(*(type(state)(*(x[last] for x in state)) for state in (before, written)))


def before_sentences(
    written: Any, log_gate: Tensor | None, start: Any | None, sentences: int
) -> Any:
    """The memory at the beginning of each of the K sentences of B documents.

    written: what each sentence writes, in B K rows; the sentences of a document are adjacent rows
    log_gate: (B K, H or 1, M), of each sentence; None is a gate of 1
    start: the memory before the first sentence of each document, in B rows; None is empty
    sentences: K, which divides the rows

    Returns B K rows. `naive.before_sentences` is the definition.
    """
    each = [x.unflatten(0, (-1, sentences)).unbind(1) for x in written]
    gates = [None] * sentences
    if log_gate is not None:
        gates = log_gate.to(written[-1].dtype).unflatten(0, (-1, sentences)).unbind(1)
    memory, found = start, []
    for own, gate in zip(map(type(written), *each), gates, strict=True):
        before = fade(empty_like(own) if memory is None else memory, gate)
        found.append(before)
        memory = merge(before, own)
    rows = (torch.stack(parts, dim=1).flatten(0, 1) for parts in zip(*found, strict=True))
    return type(written)(*rows)


def empty_like(memory: Any) -> Any:
    """A memory into which nothing is written."""
    if isinstance(memory, KernelState):
        return KernelState(*map(torch.zeros_like, memory))
    keys, values, log_mass = memory
    return MemoryState(
        torch.zeros_like(keys), torch.zeros_like(values), torch.full_like(log_mass, EMPTY)
    )
