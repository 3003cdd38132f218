"""The memory of one attention: the state that decoding carries from one step to the next."""

from typing import NamedTuple

import torch
from torch import Tensor

# Stands for log(0) in write logits and normalisers. Finite, so that the difference of two empty
# entries is 0 and not NaN; far below any logit, so that exp(EMPTY - logit) is exactly 0.
EMPTY = -1e30


def is_written(log_mass: Tensor) -> Tensor:
    """True where a write logit or a normaliser stands for something rather than for log(0)."""
    return log_mass > 0.5 * EMPTY


def mass_where(written: Tensor, dtype: torch.dtype) -> Tensor:
    """A log mass of 0 where something is written, and `EMPTY` elsewhere."""
    return torch.where(written, written.new_zeros((), dtype=dtype), EMPTY)


def joint_mass(a: Tensor, b: Tensor) -> Tensor:
    """log(exp(a) + exp(b)) of log masses.

    `torch.logaddexp` is faster, but its second derivatives are NaN where one of them is `EMPTY`.
    """
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        return torch.stack(torch.broadcast_tensors(a, b)).logsumexp(dim=0)
    return torch.logaddexp(a, b)


class MemoryState(NamedTuple):
    """A bounded memory after some prefix (ABC paper, equations 3 and 5, appendix B.1).

    Every tensor is batch first, in float32 (float64 for float64 inputs). Its size does not depend
    on the number of tokens.

    keys      (B, H, M, D): the normalised memory K~
    values    (B, H, M, D): the normalised memory V~
    log_mass  (B, H, M) or (B, 1, M): z = log sum_i alpha_i, per slot; `EMPTY` where nothing was
              ever written, and such a slot is never read
    """

    keys: Tensor
    values: Tensor
    log_mass: Tensor

    def reorder(self, new_order: Tensor) -> "MemoryState":
        """The states of the hypotheses that survive a beam step.

        new_order: (B',) indices into the batch axis.
        """
        return MemoryState(*(tensor.index_select(0, new_order) for tensor in self))

    @classmethod
    def empty(cls, k: Tensor, v: Tensor, log_alpha: Tensor) -> "MemoryState":
        """The memory before the first token, shaped after k, v (B,H,S,D) and log_alpha."""
        dtype = accumulation_dtype(k)
        batch, heads, _, width = k.shape
        slots = log_alpha.shape[-1]
        return cls(
            k.new_zeros(batch, heads, slots, width, dtype=dtype),
            v.new_zeros(batch, heads, slots, v.shape[-1], dtype=dtype),
            k.new_full((batch, log_alpha.shape[1], slots), EMPTY, dtype=dtype),
        )


def accumulation_dtype(x: Tensor) -> torch.dtype:
    """The dtype of normalisers and states: float32, or float64 for float64 inputs."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32
