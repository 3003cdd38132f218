"""The causal form of ABC for a few tokens from an empty memory, without the memory after them.

With s = log_alpha, F_j = exp(s_j - max_t s_t) and Z_t = 1 / sum_{j<=t} F_j, so that position t sees
token j with weight Z_t F_j, one chunk of the form of `chunked` is

    a_t = Z_t sum_{j<=t} (q_t . k_j) F_j,          p_t = softmax(a_t),
    o_t = sum_{j<=t} ((p_t Z_t) . F_j) v_j
"""

import math

from torch import Tensor

from fairseq_memattn.attention.ops.abc import chunked
from fairseq_memattn.attention.ops.common import EMPTY

VECTOR = 16


def fits(q: Tensor, k: Tensor) -> bool:
    """Whether the tokens are few and on a CPU, and each head of queries has its own keys."""
    return q.is_cpu and q.shape[2] <= chunked.CHUNK_SIZE and q.shape[1] == k.shape[1]


def attention(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, scale: float) -> Tensor | None:
    """ABC over T positions from an empty memory (B, H, T, D), in log_alpha's dtype.

    q, k, v: (B, H, T, D); log_alpha: (B, H or 1, T, M), `EMPTY` where nothing is written.

    None where the first token leaves a slot empty, or where F and Z cannot be held in floating
    point. Reads a number to know it.
    """
    peak = log_alpha.detach().amax(dim=2, keepdim=True).clamp(min=0.5 * EMPTY)
    fraction = (log_alpha - peak).exp()
    total = fraction.cumsum(dim=2)
    # The gradient has the square of Z.
    if not total.detach()[:, :, 0].amin().item() >= math.exp(-chunked.MAX_RISE / 2):
        return None
    gain = total.reciprocal()
    q, k, v = (x.to(fraction.dtype) for x in (q, k, v))
    scores = (q @ k.transpose(2, 3)).tril_()
    reading = _softmax((scores @ fraction) * (gain * scale))
    weights = ((reading * gain) @ fraction.transpose(2, 3)).tril_()
    return weights @ v


def _softmax(logits: Tensor) -> Tensor:
    """Over the slots. A CPU takes six times as long over a last axis that no vector fits into."""
    if logits.shape[3] >= VECTOR:
        return logits.softmax(dim=3)
    return logits.transpose(2, 3).softmax(dim=2).transpose(2, 3)
