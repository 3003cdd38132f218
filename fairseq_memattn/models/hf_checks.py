"""Checks of models saved by `transformers`, before they are converted."""

from collections.abc import Iterable, Mapping, Sequence
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
    sizes: keys whose values must be whole numbers of at least 1
    """
    for key, (wanted, absent) in required.items():
        value = config.get(key, absent)
        if value != wanted:
            raise MemAttnError(
                f"config.json: {key} must be {wanted!r}, as in {model}, but is {value!r:.60}"
            )
    for key in sizes:
        size(config, key)


def size(config: Mapping[str, Any], key: str, absent: int | None = None) -> int:
    """The value of a key. Raises MemAttnError unless it is a whole number of at least 1."""
    value = config.get(key, absent)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise MemAttnError(
            f"config.json: {key} must be a number of at least 1, but is {value!r:.60}"
        )
    return value


def rate(config: Mapping[str, Any], key: str, absent: float) -> float:
    """The value of a key. Raises MemAttnError unless it is a number from 0 to 1."""
    value = config.get(key, absent)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise MemAttnError(f"config.json: {key} must be a number from 0 to 1, but is {value!r:.60}")
    return float(value)


def shape_of(saved: Mapping[str, Tensor], name: str) -> tuple[int, int]:
    """The shape of a matrix among the weights; zeros if they lack it."""
    weight = saved.get(name)
    return (0, 0) if weight is None or weight.dim() != 2 else (weight.shape[0], weight.shape[1])


def tied(saved: Mapping[str, Tensor], names: Iterable[str], model: str) -> Tensor | None:
    """The one value of several weights; None if the model has none of them.

    Raises MemAttnError for weights that differ.
    """
    found = [name for name in names if name in saved]
    for name in found[1:]:
        if not torch.equal(saved[name], saved[found[0]]):
            raise MemAttnError(f"the weights {found[0]} and {name} differ, but {model} ties them")
    return saved[found[0]] if found else None


def embeddings(saved: Mapping[str, Tensor], names: Sequence[str], model: str) -> Tensor:
    """`tied`, of tables of embeddings. Raises MemAttnError if there are none."""
    table = tied(saved, names, model)
    if table is None:
        raise MemAttnError(f"the weights contain no embeddings ({', '.join(names)})")
    return table


def check_sizes(config: Mapping[str, Any], found: Mapping[str, int]) -> None:
    """Raises MemAttnError for a config.json with larger sizes than the weights have.

    Nothing of these sizes has been allocated yet. `check_weights` compares smaller sizes.

    found: the sizes in the weights, by key; a key that the config.json lacks is not compared
    """
    for key, largest in found.items():
        value = config.get(key)
        if value is not None and value > largest:
            raise MemAttnError(
                f"config.json: {key} must be at most the {largest} in the weights, but is "
                f"{value!r:.60}"
            )


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
