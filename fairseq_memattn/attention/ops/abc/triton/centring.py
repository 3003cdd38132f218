"""Keys and values without their means over the tokens, for the backward pass in half precision.

The weights of the tokens in a slot sum to 1, so that a vector added to all keys, or to all values,
changes no gradient of q, k, v and the write logits. With it, these gradients are small differences
of large numbers, which bfloat16 and TF32 round.
"""

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.common import is_written


def mean_of_tokens(x: Tensor, padding: Tensor | None) -> Tensor:
    """The mean (B, H, 1, D) of x (B, H, T, D), in its dtype.

    padding: (B, T); these tokens do not count
    """
    if padding is None:
        return x.mean(dim=2, keepdim=True)
    padding = padding[:, None, :, None]
    count = (~padding).sum(dim=2, keepdim=True).clamp(min=1)
    total = x.masked_fill(padding, 0).sum(dim=2, keepdim=True, dtype=torch.float32)
    return (total / count).to(x.dtype)


def centre_memory(start: tuple[Tensor, ...], key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """A memory (keys, values, log mass) whose tokens lose these means. Empty slots stay empty."""
    keys, values, log_mass = start
    held = is_written(log_mass).unsqueeze(3)
    return (
        torch.where(held, keys - key.float(), keys),
        torch.where(held, values - value.float(), values),
        log_mass,
    )


def logits_of_mean(q: Tensor, key: Tensor, scale: float) -> Tensor:
    """What the mean of the keys adds to the logits of every slot: (B, T, H), in float32."""
    return scale * (q.float() @ key.float().mT).squeeze(3).transpose(1, 2)
