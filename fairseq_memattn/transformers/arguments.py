"""The name of the cache among the arguments and the outputs of a model.

It is `past_key_values` in transformers before 5.24, and `cache` in later versions.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from transformers import GenerationMixin

OLD, NEW = "past_key_values", "cache"
# What `generate` passes to `forward`, and takes from its output.
CACHE = (
    NEW
    if NEW in inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters
    else OLD
)


def takes_either_name(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A `forward` with the argument `past_key_values` that takes it as `cache` too.

    Raises ValueError if both are given.
    """

    @wraps(forward)
    def renamed(self: Any, *args: Any, cache: Any = None, **kwargs: Any) -> Any:
        if cache is not None:
            if kwargs.get(OLD) is not None:
                raise ValueError(f"only one of `{NEW}` and `{OLD}` may be given.")
            kwargs[OLD] = cache
        return forward(self, *args, **kwargs)

    return renamed


def named(cache: Any) -> dict[str, Any]:
    """The cache as an argument of an output's class."""
    return {CACHE: cache}
