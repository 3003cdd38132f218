"""The slow, obvious form of additive attention: the oracle of `additive`.

Loops over positions, everything in float64.
"""

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.common import EMPTY, MemoryState, is_written, mass_where


def additive_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: Tensor,
    *,
    causal: bool,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """`fairseq_memattn.attention.additive_attention`: the recurrence of Table 1, step by step."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v, phi = (tensor.double() for tensor in (q, k, v, phi))
    phi = phi.expand(-1, q.shape[1], -1, -1)
    if key_padding_mask is not None:
        phi = phi * ~key_padding_mask[:, None, :, None]
    keys = [k.new_zeros(*phi.shape[:2], phi.shape[3], k.shape[3])]
    values = [torch.zeros_like(keys[0])]
    for t in range(k.shape[2]):
        keys.append(keys[-1] + phi[:, :, t, :, None] * k[:, :, t, None, :])
        values.append(values[-1] + phi[:, :, t, :, None] * v[:, :, t, None, :])
    outputs = []
    for t in range(q.shape[2]):
        last = t + 1 if causal else k.shape[2]
        written = (phi[:, :, :last] != 0).any(dim=2)
        logits = scale * torch.einsum("bhmd,bhd->bhm", keys[last], q[:, :, t])
        reading = logits.masked_fill(~written, -torch.inf).softmax(dim=-1).nan_to_num()
        outputs.append(torch.einsum("bhm,bhmd->bhd", reading, values[last]))
    return torch.stack(outputs, dim=2)


def causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: Tensor,
    state: MemoryState,
    scale: float,
    chunk_size: int | None,
) -> tuple[Tensor, MemoryState]:
    """The recurrence from a given memory: the oracle as a backend.

    q, k, v: (B, H, T, D); phi: (B, H or 1, T, M); chunk_size: ignored
    Returns the output (B, H, T, D) in phi's dtype and the memory at the end.
    """
    keys, values, log_mass = state
    outputs = []
    for t in range(q.shape[2]):
        phi_t = phi[:, :, t].unsqueeze(3)
        keys = keys + phi_t * k[:, :, t, None].to(phi.dtype)
        values = values + phi_t * v[:, :, t, None].to(phi.dtype)
        written = is_written(log_mass) | (phi[:, :, t] != 0)
        log_mass = mass_where(written, phi.dtype)
        logits = torch.einsum("bhmd,bhd->bhm", keys, scale * q[:, :, t].to(phi.dtype))
        reading = logits.masked_fill(~written, EMPTY).softmax(dim=2) * written
        outputs.append(torch.einsum("bhm,bhmd->bhd", reading, values))
    return torch.stack(outputs, dim=2), MemoryState(keys, values, log_mass)
