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


class ResidualLayer(nn.Module):
    """A base of layers whose blocks have residual connections. Names of parts are fairseq's."""

    fc1: nn.Module
    fc2: nn.Module
    activation_fn: Callable[[Tensor], Tensor]
    dropout_module: nn.Module
    activation_dropout_module: nn.Module
    normalize_before: bool

    def residual(self, norm: nn.Module, x: Tensor, block: Callable[[Tensor], Tensor]) -> Tensor:
        """A block with its residual connection, and its norm before or after it."""
        out = x + self.dropout_module(block(norm(x) if self.normalize_before else x))
        return out if self.normalize_before else norm(out)

    def feed_forward(self, x: Tensor) -> Tensor:
        """(B, T, E), as x."""
        return self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(x))))


def move_to_end(module: nn.Module, *names: str) -> None:
    """Makes these submodules the last ones, in this order; names without a submodule are skipped.

    The states of an optimiser belong to parameters by their number in this order.
    """
    for name in names:
        if name in module._modules:
            module._modules[name] = module._modules.pop(name)
