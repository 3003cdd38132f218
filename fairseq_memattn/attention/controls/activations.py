"""ABC-MLP's activations (ABC paper, equation 12 and appendix C.2), as logarithms."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def _log_relu(logits: Tensor) -> Tensor:
    positive = logits > 0
    # The inner `where` keeps log's infinite slope at 0 out of the gradient.
    return torch.where(positive, logits, 1.0).log().masked_fill(~positive, -torch.inf)


def _identity(logits: Tensor) -> Tensor:
    return logits


# The paper's three activations, each as the logarithm of what it writes (appendix C.2).
LOG_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": _identity,
    "sigmoid": logsigmoid,
    "relu": _log_relu,
}


def log_control(logits: Tensor, activation: str = "exp") -> Tensor:
    """log alpha from logits = W_phi x, both (B, H, S, M), in float32 (or float64).

    activation: "exp", "sigmoid" or "relu". With "relu" a logit <= 0 gives -inf: nothing is
    written, and a slot into which nothing was written is never read.

    Raises ValueError for any other activation.
    """
    if activation not in LOG_ACTIVATIONS:
        raise ValueError(
            f"`activation` must be one of {', '.join(LOG_ACTIVATIONS)}, "
            f"but is {activation!r} instead."
        )
    if logits.dtype != torch.float64:
        logits = logits.float()
    return LOG_ACTIVATIONS[activation](logits)
