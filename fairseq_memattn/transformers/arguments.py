"""Arguments that all models take, and the cache's name among them."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from torch import nn
from transformers import GenerationMixin

# Arguments of transformers' own models that these do not take.
VECTORS = ("inputs_embeds", "decoder_inputs_embeds")
# Those that `generate` and trainers may give any model, and that these do not read.
UNREAD = {
    *("position_ids", "output_router_logits", "is_causal", "seq_idx"),
    *("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"),
}
OF_SEARCH = ("tokenizer", "assistant_tokenizer")  # which `generate` passes on to `forward`

# The cache is `past_key_values` in transformers before 5.24, and `cache` in later versions.
OLD, NEW = "past_key_values", "cache"
# What `generate` passes to `forward`, and takes from its output.
CACHE = (
    NEW
    if NEW in inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters
    else OLD
)


def takes_either_name(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A `forward` with the argument `past_key_values` that takes it as `cache` too.

    It takes those of `UNREAD` that the model does not have as None.
    Raises ValueError if both are given, and for a value that the model would not read.
    """

    unread = UNREAD - set(inspect.signature(forward).parameters)

    @wraps(forward)
    def renamed(self: Any, *args: Any, cache: Any = None, **kwargs: Any) -> Any:
        if cache is not None:
            if kwargs.get(OLD) is not None:
                raise ValueError(f"only one of `{NEW}` and `{OLD}` may be given.")
            kwargs[OLD] = cache
        for name in OF_SEARCH:
            kwargs.pop(name, None)
        for name in unread.intersection(kwargs):
            if kwargs.pop(name) is not None:
                raise ValueError(f"`{name}` must be left out: the model does not read it.")
        return forward(self, *args, **kwargs)

    return renamed


def named(cache: Any) -> dict[str, Any]:
    """The cache as an argument of an output's class."""
    return {CACHE: cache}


def wants_states(
    config: Any, output_hidden_states: bool | None, output_attentions: bool | None
) -> bool:
    """Whether hidden states are asked for, here or in the configuration.

    Raises ValueError where attention weights are, which bounded memories do not have.
    """
    states, attentions = (
        getattr(config, name, False) if given is None else given
        for name, given in (
            ("output_hidden_states", output_hidden_states),
            ("output_attentions", output_attentions),
        )
    )
    if attentions:
        raise ValueError("`output_attentions` must not be True: the weights are not returned.")
    return bool(states)


def refuse_vectors(*given: Any) -> None:
    """Raises ValueError for `VECTORS` that are not None."""
    for name, value in zip(VECTORS, given, strict=False):
        if value is not None:
            raise ValueError(f"`{name}` must be left out: the model reads tokens alone.")


def recomputes(layers: Iterable[nn.Module]) -> bool:
    """Whether the backward pass computes one of the layers again (gradient checkpoints)."""
    return any(
        layer.training and getattr(layer, "gradient_checkpointing", False) for layer in layers
    )


def refuse_cache(cache: object | None, layers: Iterable[nn.Module]) -> None:
    """Raises ValueError for a cache in training with gradient checkpoints."""
    if cache is not None and recomputes(layers):
        raise ValueError(
            "`use_cache` and `past_key_values` must be left out in training with gradient "
            "checkpointing, which would write to the cache twice."
        )
