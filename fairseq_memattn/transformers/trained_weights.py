"""Loads a model of which every weight is trained, or says which is not."""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM

from fairseq_memattn.errors import MemAttnError

# What is wrong with weights, by transformers' names for them.
WRONG = {
    "missing_keys": "weights are missing",
    "unexpected_keys": "weights are not the model's",
    "mismatched_keys": "weights have another shape than the model's",
}


def load(folder: str | Path, **options: Any) -> Any:
    """The encoder-decoder in a folder.

    options: of the model's `from_pretrained`

    Raises MemAttnError for weights that cannot be read, do not fit the model, or are not finite.
    """
    options = {"trust_remote_code": False} | options
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        with _without_report():
            model, found = AutoModelForSeq2SeqLM.from_pretrained(folder, **options)
    except SafetensorError as error:
        raise MemAttnError(f"{folder}: the weights cannot be read: {error}") from None
    for name, wrong in WRONG.items():
        _refuse(folder, wrong, found[name])
    _refuse(folder, "weights have values that are infinite or NaN", _not_finite(model))
    return model


def _refuse(folder: str | Path, wrong: str, keys: Collection[Any]) -> None:
    """Raises MemAttnError if there are keys: names, or names and shapes."""
    if keys:
        first = min(key if isinstance(key, str) else key[0] for key in keys)
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        raise MemAttnError(f"{folder}: {wrong}: `{first}`{more}")


def _not_finite(model: nn.Module) -> list[str]:
    """The names of the weights with values that are infinite or NaN."""
    weights: dict[str, Tensor] = model.state_dict()
    # Weights that transformers leaves on the disk are on the device meta.
    return [name for name, w in weights.items() if not w.is_meta and not w.isfinite().all()]


@contextmanager
def _without_report() -> Iterator[None]:
    """Leaves out the table that transformers logs of weights that do not fit."""
    log = logging.getLogger("transformers.modeling_utils")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
