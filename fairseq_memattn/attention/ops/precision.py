"""Computations in float32 for inputs of any dtype."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fairseq_memattn.attention.ops.state import accumulation_dtype

P = ParamSpec("P")
R = TypeVar("R")


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Switches autocast off, which would compute normalisers and memories in half precision."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        if not tensors or not is_autocast(tensors[0]):
            return function(*args, **kwargs)
        with torch.autocast(tensors[0].device.type, enabled=False):
            return function(*args, **kwargs)

    return wrapped


def is_autocast(x: Tensor) -> bool:
    """Whether autocast is on for the device of x, which `meta` has none for."""
    # torch.amp.is_autocast_available breaks the graph of torch.compile in torch 2.11.
    return x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)


def over_tokens(logits: Tensor) -> Tensor:
    """The softmax over the tokens of (..., S, M), whose sums torch forms exactly on the last axis.

    Over another axis it adds one term after another on a CPU.
    """
    shares: Tensor = logits.transpose(-2, -1).softmax(dim=-1).transpose(-2, -1)
    return shares


SHORTEST = 1e-3


def unit_vectors(x: Tensor) -> Tensor:
    """x / max(|x|, SHORTEST) of vectors x (..., D), whose gradient is bounded."""
    return normalize(x, dim=-1, eps=SHORTEST)


def read_scale(q: Tensor, scale: float | None) -> float:
    """The scale of the read logits; None is D ** -0.5."""
    return float(q.shape[-1] ** -0.5) if scale is None else scale


def scaled(q: Tensor, scale: float | None) -> Tensor:
    """Queries times the scale of the read logits."""
    return q.to(accumulation_dtype(q)) * read_scale(q, scale)
