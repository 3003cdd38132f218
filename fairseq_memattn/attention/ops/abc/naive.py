"""Slow, obvious forms, one function per equation: the oracle of every fast path.

Loops over positions, everything in float64, and a softmax wherever the paper divides by a sum.
"""

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.common import EMPTY, MemoryState, is_written


def memory(k: Tensor, v: Tensor, log_alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Equations 3 and 12 for one head of one sentence.

    k, v: (S, D); log_alpha: (S, M). Returns K~, V~, both (M, D).
    """
    phi = log_alpha.softmax(dim=0)
    keys = sum(torch.outer(phi_i, k_i) for phi_i, k_i in zip(phi, k, strict=True))
    values = sum(torch.outer(phi_i, v_i) for phi_i, v_i in zip(phi, v, strict=True))
    assert isinstance(keys, Tensor) and isinstance(values, Tensor)
    return keys, values


def read(q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Equation 4 for one query. q: (D,); keys, values: (M, D). Returns (D,)."""
    return values.T @ (scale * (keys @ q)).softmax(dim=0)


def attend(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, scale: float) -> Tensor:
    """One query over the S tokens it may see; slots that received nothing are left out."""
    written = (log_alpha > -torch.inf).any(dim=0) if len(k) else torch.zeros(0, dtype=torch.bool)
    if not written.any():
        return torch.zeros_like(q)
    return read(q, *memory(k, v, log_alpha[:, written]), scale)


def abc_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    *,
    causal: bool,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The same function as `fairseq_memattn.attention.abc_attention`, from the definition."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v, log_alpha = (tensor.double() for tensor in (q, k, v, log_alpha))
    log_alpha = log_alpha.expand(-1, q.shape[1], -1, -1)
    rows = []
    for b in range(q.shape[0]):
        real = torch.ones(k.shape[2], dtype=torch.bool, device=k.device)
        if key_padding_mask is not None:
            real = ~key_padding_mask[b]
        for h in range(q.shape[1]):
            for t in range(q.shape[2]):
                seen = real.clone()
                if causal:
                    seen[t + 1 :] = False
                rows.append(
                    attend(q[b, h, t], k[b, h, seen], v[b, h, seen], log_alpha[b, h, seen], scale)
                )
    return torch.stack(rows).view_as(q)


def recurrent_attention(
    q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, *, scale: float | None = None
) -> tuple[Tensor, MemoryState]:
    """Equation 5 with the normalisation of appendix B.1, taken literally.

    Sums alpha (x) k and alpha themselves and divides at every step, so it overflows for large
    logits; its use is to check the other forms where it does not. Returns the outputs and the
    final memory.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v, log_alpha = (tensor.double() for tensor in (q, k, v, log_alpha))
    alpha = log_alpha.exp().expand(-1, q.shape[1], -1, -1)
    weighted_keys = k.new_zeros(*alpha[:, :, 0].shape, k.shape[-1])
    weighted_values, mass = torch.zeros_like(weighted_keys), torch.zeros_like(alpha[:, :, 0])
    outputs = []
    for t in range(q.shape[2]):
        weighted_keys = weighted_keys + alpha[:, :, t, :, None] * k[:, :, t, None, :]
        weighted_values = weighted_values + alpha[:, :, t, :, None] * v[:, :, t, None, :]
        mass = mass + alpha[:, :, t]
        keys, values = weighted_keys / mass[..., None], weighted_values / mass[..., None]
        reading = torch.einsum("bhmd,bhd->bhm", keys, scale * q[:, :, t]).softmax(dim=-1)
        outputs.append(torch.einsum("bhm,bhmd->bhd", reading, values))
    return torch.stack(outputs, dim=2), MemoryState(keys, values, mass.log())


def causal_sums(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    state: MemoryState,
    scale: float,
    chunk_size: int | None,
) -> tuple[Tensor, MemoryState, Tensor]:
    """Equation 5, one position after another from a given memory: the oracle as a backend.

    q, k, v: (B, H, T, D); log_alpha: (B, H or 1, T, M), `EMPTY` where nothing is written;
    chunk_size: ignored. Returns the output (B, H, T, D) in log_alpha's dtype, the last memory and
    the log of the sum of exp(read logit), (B, H, T).
    """
    keys, values, log_mass = state
    outputs, sums = [], []
    for t in range(q.shape[2]):
        log_alpha_t = log_alpha[:, :, t]
        total = torch.stack(torch.broadcast_tensors(log_mass, log_alpha_t)).logsumexp(dim=0)
        old = (log_mass - total).exp().unsqueeze(3)
        new = ((log_alpha_t - total).exp() * is_written(log_alpha_t)).unsqueeze(3)
        keys = old * keys + new * k[:, :, t, None].to(log_alpha.dtype)
        values = old * values + new * v[:, :, t, None].to(log_alpha.dtype)
        log_mass = total
        logits = torch.einsum("bhmd,bhd->bhm", keys, scale * q[:, :, t].to(log_alpha.dtype))
        written = is_written(log_mass)
        logits = logits.masked_fill(~written, EMPTY)
        outputs.append(torch.einsum("bhm,bhmd->bhd", logits.softmax(dim=2) * written, values))
        sums.append(logits.logsumexp(dim=2))
    after = MemoryState(keys, values, log_mass)
    return torch.stack(outputs, dim=2), after, torch.stack(sums, dim=2)
