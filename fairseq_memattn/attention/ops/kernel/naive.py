"""Slow, obvious forms of kernel attention: the oracle of every fast path.

Loops over positions, everything in float64.
"""

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.kernel.chunked import KernelState


def shares(log_gate: Tensor) -> Tensor:
    """How much the state holds of each of the tokens 0..t after token t, by log g: (t + 1,).

    (1 - g_j) g_{j+1} ... g_t for token j.
    """
    later = [log_gate[j + 1 :].exp().prod() for j in range(len(log_gate))]
    return -log_gate.expm1() * torch.stack(later)


def attend(phi_q: Tensor, phi_k: Tensor, v: Tensor, share: Tensor, floor: float) -> Tensor:
    """One query (F,) over tokens phi_k (S, F), v (S, D), of which the state holds share (S,)."""
    if len(phi_k) == 0:
        return v.new_zeros(v.shape[1])
    values = torch.stack([torch.outer(*pair) for pair in zip(phi_k, v, strict=True)])
    total = (share[:, None, None] * values).sum(dim=0).T @ phi_q
    normaliser = (share[:, None] * phi_k).sum(dim=0)
    mass = phi_q @ normaliser
    if floor > 0:
        mass = torch.maximum(mass, floor * phi_q.norm() * normaliser.norm())
    return total / mass if mass > 0 else 0 * total


def kernel_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    log_gate: Tensor | None = None,
    *,
    causal: bool,
    key_padding_mask: Tensor | None = None,
    floor: float = 0.0,
) -> Tensor:
    """The same function as `fairseq_memattn.attention.ops.kernel.chunked`, from the definition."""
    phi_q, phi_k, v = (tensor.double() for tensor in (phi_q, phi_k, v))
    if log_gate is not None:
        log_gate = log_gate.double().expand(*phi_k.shape[:3])
    rows = []
    for b in range(phi_q.shape[0]):
        real = torch.ones(phi_k.shape[2], dtype=torch.bool, device=phi_k.device)
        if key_padding_mask is not None:
            real = ~key_padding_mask[b]
        for h in range(phi_q.shape[1]):
            for t in range(phi_q.shape[2]):
                seen = real.clone()
                if causal:
                    seen[t + 1 :] = False
                share = torch.ones_like(phi_k[b, h, seen, 0])
                if log_gate is not None and seen.any():
                    share = shares(log_gate[b, h, seen])
                rows.append(attend(phi_q[b, h, t], phi_k[b, h, seen], v[b, h, seen], share, floor))
    return torch.stack(rows).view(*phi_q.shape[:3], v.shape[3])


def recurrent_attention(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, log_gate: Tensor | None = None
) -> tuple[Tensor, KernelState]:
    """The recurrence over S and z, taken literally. Returns the outputs and the final state."""
    phi_q, phi_k, v = (tensor.double() for tensor in (phi_q, phi_k, v))
    kept = fresh = torch.ones_like(phi_k[..., 0])
    if log_gate is not None:
        kept, fresh = log_gate.double().exp(), -log_gate.double().expm1()
    values = phi_k.new_zeros(*phi_k.shape[:2], phi_k.shape[3], v.shape[3])
    normaliser = phi_k.new_zeros(*phi_k.shape[:2], phi_k.shape[3])
    outputs = []
    for t in range(phi_q.shape[2]):
        keep, write = kept[:, :, t, None], fresh[:, :, t, None] * phi_k[:, :, t]
        values = keep[..., None] * values + write[..., None] * v[:, :, t, None, :]
        normaliser = keep * normaliser + write
        total = torch.einsum("bhf,bhfd->bhd", phi_q[:, :, t], values)
        mass = torch.einsum("bhf,bhf->bh", phi_q[:, :, t], normaliser)
        outputs.append(total / mass[..., None])
    return torch.stack(outputs, dim=2), KernelState(values, normaliser)
