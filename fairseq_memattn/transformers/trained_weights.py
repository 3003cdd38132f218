"""Loads a model of which every weight is trained, or says which is not."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import AutoModelForSeq2SeqLM

from fairseq_memattn.errors import MemAttnError

# What is wrong with weights, by transformers' names for them but for the last.
WRONG = {
    "missing_keys": "weights are missing",
    "unexpected_keys": "weights are not the model's",
    "mismatched_keys": "weights have another shape than the model's",
    "not_finite": "weights have values that are infinite or NaN",
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
    # Weights that transformers leaves on the disk are on the device meta.
    found["not_finite"] = [
        name for name, w in model.state_dict().items() if not w.is_meta and not w.isfinite().all()
    ]
    for kind, wrong in WRONG.items():
        if keys := found[kind]:  # names, or names and shapes
            first = min(key if isinstance(key, str) else key[0] for key in keys)
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise MemAttnError(f"{folder}: {wrong}: `{first}`{more}")
    return model


@contextmanager
def _without_report() -> Iterator[None]:
    """Leaves out the table that transformers logs of weights that do not fit.

    A level of WARNING or above makes transformers 5.23 list layers that are not sharded.
    """
    log = logging.getLogger("transformers.modeling_utils")
    log.addFilter(_nothing)
    try:
        yield
    finally:
        log.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False
