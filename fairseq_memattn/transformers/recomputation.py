"""Gradient checkpoints: the backward pass computes each layer again, on its own."""

from collections.abc import Iterable

from torch import nn


def recomputes(layers: Iterable[nn.Module]) -> bool:
    """Whether the backward pass computes one of the layers again."""
    return any(
        layer.training and getattr(layer, "gradient_checkpointing", False) for layer in layers
    )


def refuse_cache(cache: object | None, layers: Iterable[nn.Module]) -> None:
    """Raises ValueError for a cache in training with gradient checkpoints.

    cache: `past_key_values`, None if there are none
    """
    if cache is not None and recomputes(layers):
        raise ValueError(
            "`use_cache` and `past_key_values` must be left out in training with gradient "
            "checkpointing, which would write to the cache twice."
        )
