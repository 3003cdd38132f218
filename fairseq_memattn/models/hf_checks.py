"""What is checked of any model that `transformers` has saved, before it becomes one of ours."""

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
    """Raises MemAttnError for a config.json of another model, and for a size that is missing.

    required: what keys must be, and what transformers takes them for where they are absent
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
    """Raises MemAttnError unless the weights are all that a model of this size has.

    model: of this plugin; its weights' values are not looked at
    """
    expected = model.state_dict()
    for name in expected.keys() | ours.keys():
        if name not in ours:
            raise MemAttnError(f"the weights lack `{name}`, which config.json asks for")
        if name not in expected:
            raise MemAttnError(f"the weights hold `{name}`, for which config.json has no place")
        sizes = [tuple(weights[name].shape) for weights in (ours, expected)]
        if sizes[0] != sizes[1]:
            raise MemAttnError(
                f"`{name}` is {sizes[0]} in the weights, but {sizes[1]} by config.json"
            )


def unused_symbols(count: int) -> list[str]:
    """Names for rows of a table that stand for nothing, as fairseq has them."""
    return [f"madeupword{number:04}" for number in range(count)]


def checked_symbols(names: list[str]) -> list[str]:
    """The names again. Raises MemAttnError for those that a dictionary cannot hold or tell apart.

    names: of the symbols after fairseq's four
    """
    seen = {"<s>", "<pad>", "</s>", "<unk>"}
    for name in names:
        if name in seen:
            raise MemAttnError(f"the vocabulary has {name!r} twice, which no dictionary can hold")
        if name.split() != [name]:
            raise MemAttnError(
                f"the piece {name!r} has white space, which parts symbols in a dictionary"
            )
        seen.add(name)
    return names
