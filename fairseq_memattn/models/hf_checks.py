"""Checks of models saved by `transformers`, before they are converted."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from fairseq_memattn.errors import MemAttnError


def refuse_unlike(
    model: str,
    config: Mapping[str, Any],
    required: Mapping[str, tuple[Any, Any]],
    sizes: Iterable[str],
) -> None:
    """Raises MemAttnError for a config.json of another model and for a missing size.

    model: the name of the model in the message
    required: the required value of each key, and transformers' default for an absent key
    sizes: keys whose values must be numbers
    """
    for key, (wanted, absent) in required.items():
        value = config.get(key, absent)
        if value != wanted:
            raise MemAttnError(
                f"config.json: {key} must be {wanted!r}, as in {model}, but is {value!r}"
            )
    for key in sizes:
        if not isinstance(config.get(key), int):
            raise MemAttnError(f"config.json: {key} must be a number, but is {config.get(key)!r}")


def check_weights(ours: dict[str, Tensor], model: torch.nn.Module) -> None:
    """Raises MemAttnError unless the weights have the names and shapes of the model's weights.

    ours: the converted weights; model: one of ours, whose values are not used
    """
    expected = model.state_dict()
    for name in expected.keys() | ours.keys():
        if name not in ours:
            raise MemAttnError(f"the weights lack `{name}`, which config.json requires")
        if name not in expected:
            raise MemAttnError(f"the weights contain `{name}`, which does not fit config.json")
        sizes = [tuple(weights[name].shape) for weights in (ours, expected)]
        if sizes[0] != sizes[1]:
            raise MemAttnError(
                f"`{name}` is {sizes[0]} in the weights, but {sizes[1]} by config.json"
            )


def unused_symbols(count: int) -> list[str]:
    """fairseq's names for unused rows of an embedding table."""
    return [f"madeupword{number:04}" for number in range(count)]


def checked_symbols(names: list[str]) -> list[str]:
    """Returns the names. Raises MemAttnError for names that a dictionary cannot hold.

    names: of the symbols after fairseq's first four
    """
    seen = {"<s>", "<pad>", "</s>", "<unk>"}
    for name in names:
        if name in seen:
            raise MemAttnError(f"the vocabulary has {name!r} twice, which a dictionary cannot hold")
        if name.split() != [name]:
            raise MemAttnError(
                f"the piece {name!r} has white space, which separates symbols in a dictionary"
            )
        seen.add(name)
    return names
