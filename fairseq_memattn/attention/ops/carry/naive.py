"""The oracle of `before_sentences`: one sentence after another, in float64."""

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.common import EMPTY, MemoryState, is_written


def before_sentences(
    written: MemoryState, log_gate: Tensor | None, start: MemoryState | None, sentences: int
) -> MemoryState:
    """The same function as `fairseq_memattn.attention.ops.carry.before_sentences`."""
    keys, values, log_mass = (x.double().unflatten(0, (-1, sentences)) for x in written)
    mass = _mass(log_mass)
    weighted = [torch.zeros_like(x[:, 0]) for x in (keys, values)]
    total = torch.zeros_like(mass[:, 0])
    if start is not None:
        total = _mass(start.log_mass.double())
        weighted = [total.unsqueeze(3) * x.double() for x in start[:2]]
    found = []
    for i in range(sentences):
        if log_gate is not None:
            gate = log_gate.double().exp().unflatten(0, (-1, sentences))[:, i]
            total, weighted = gate * total, [gate.unsqueeze(3) * x for x in weighted]
        positive = total.clamp(min=1e-300)
        means = [x / positive.unsqueeze(3) for x in weighted]
        found.append((*means, torch.where(total > 0, positive.log(), EMPTY)))
        own = mass[:, i].unsqueeze(3)
        total = total + mass[:, i]
        weighted = [x + own * y[:, i] for x, y in zip(weighted, (keys, values), strict=True)]
    return MemoryState(
        *(torch.stack(parts, dim=1).flatten(0, 1) for parts in zip(*found, strict=True))
    )


def _mass(log_mass: Tensor) -> Tensor:
    return torch.where(is_written(log_mass), log_mass.exp(), 0.0)
