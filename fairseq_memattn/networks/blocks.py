"""What several networks are made of."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional


def _relu_squared(x: Tensor) -> Tensor:
    return functional.relu(x).square()


# By the names of fairseq and of transformers.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "relu_squared": _relu_squared,
    "relu2": _relu_squared,
    "relu6": functional.relu6,
    "leaky_relu": functional.leaky_relu,
    "gelu": functional.gelu,
    **dict.fromkeys(
        ("gelu_accurate", "gelu_fast", "gelu_new", "gelu_pytorch_tanh"),
        partial(functional.gelu, approximate="tanh"),
    ),
    "silu": functional.silu,
    "swish": functional.silu,
    "mish": functional.mish,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "linear": torch.nn.Identity(),
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The function of that name. Raises ValueError for a name that is not one of `ACTIVATIONS`."""
    if name not in ACTIVATIONS:
        raise ValueError(
            f"the activation must be one of {', '.join(ACTIVATIONS)}, but is {name} instead."
        )
    return ACTIVATIONS[name]


def move_to_end(module: nn.Module, *names: str) -> None:
    """Makes these submodules the last ones, in this order; names without a submodule are skipped.

    The states of an optimiser belong to parameters by their number in this order.
    """
    for name in names:
        if name in module._modules:
            module._modules[name] = module._modules.pop(name)
