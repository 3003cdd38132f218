"""What fairseq leaves out of an evaluation or an epoch, and how a command says so.

fairseq leaves out samples that are longer than the model, and the last batch of every data set if
its size is not a multiple of --required-batch-size-multiple, which is 8 unless given.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fairseq_memattn.errors import MemAttnError

logger = logging.getLogger(__name__)


def count_long_samples(
    filter_by_size: Callable[..., Any],
    self: Any,
    indices: Any,
    dataset: Any,
    max_positions: Any = None,
    ignore_invalid_inputs: bool = False,
) -> Any:
    """Samples that are too long are counted; all of a split is an error.

    Raises MemAttnError for samples that are longer than the model, if they must not be left out or
    if none is left of a split. fairseq-interactive goes on with the next line.
    """
    kept, omitted = dataset.filter_indices_by_size(indices, max_positions)
    if not len(omitted):
        return kept
    longest = max(omitted, key=lambda index: np.max(dataset.size(index)))
    fault = (
        f"{len(omitted)} of {len(indices)} samples are longer than the limit of "
        f"{_tokens(max_positions)}; the longest is sample {longest + 1} with "
        f"{_tokens(dataset.size(longest))}"
    )
    if not ignore_invalid_inputs:
        raise MemAttnError(
            f"{fault}; shorten them, or leave them out with --skip-invalid-size-inputs-valid-test"
        )
    if not len(kept) and any(dataset is split for split in self.datasets.values()):
        raise MemAttnError(f"no sample is left: {fault}")
    logger.warning("%s; they are left out", fault)
    return kept


def _tokens(size: Any) -> str:
    """A number of tokens, or a pair of them."""
    if isinstance(size, Sequence | np.ndarray) and len(size) == 2:
        return f"{int(size[0])} source and {int(size[1])} target tokens"
    return f"{size} tokens"


def count_last_batch(
    batch_by_size: Callable[..., Any],
    indices: Any,
    num_tokens_fn: Callable[[int], int],
    num_tokens_vec: Any = None,
    max_tokens: Any = None,
    max_sentences: Any = None,
    required_batch_size_multiple: int = 1,
    fixed_shapes: Any = None,
) -> Any:
    """The samples of a last batch that is left out are counted."""
    multiple = required_batch_size_multiple
    options = (max_tokens, max_sentences, multiple, fixed_shapes)
    if not len(indices):
        return []
    batches = batch_by_size(indices, num_tokens_fn, num_tokens_vec, *options)
    omitted = len(indices) - sum(map(len, batches))
    fault = f"--required-batch-size-multiple {multiple} leaves out the last batch"
    if omitted and not len(batches):
        raise MemAttnError(f"{fault}, which has all {omitted} samples; give 1")
    if omitted:
        logger.warning("%s, %d of %d samples; 1 leaves out none", fault, omitted, len(indices))
    return batches


def keep_last_batch(
    get_valid_iterator: Callable[..., Any], self: Any, *args: Any, **kwargs: Any
) -> Any:
    """Validation keeps the last batch."""
    options = self.cfg.dataset
    given = options.required_batch_size_multiple
    options.required_batch_size_multiple = 1
    try:
        return get_valid_iterator(self, *args, **kwargs)
    finally:
        options.required_batch_size_multiple = given


def require_targets(get_iterator: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """A split without targets is an error before it is read.

    fairseq fails on those of the validation after an epoch, before it is saved.
    """
    targets = "target sentences, but its target file is missing"
    needed = {"tgt": targets, "target": targets, "answers": "answers, but they are not public"}
    for split, dataset in self.task.datasets.items():
        dataset = getattr(dataset, "dataset", dataset)  # of several processes, or of --stream
        for name, what in needed.items():
            if getattr(dataset, name, 0) is None:
                raise MemAttnError(f"the split {split} must have {what}")
    return get_iterator(self, *args, **kwargs)


def evaluate_every_block(
    dataloader: Callable[..., Any],
    self: Any,
    dataset: Any,
    *args: Any,
    max_positions: Any = None,
    **kwargs: Any,
) -> Any:
    """Blocks that are longer than the model are an error.

    fairseq leaves them out.
    """
    sizes = np.asarray(dataset.sizes)
    too_long = 0 if max_positions is None else int((sizes > max_positions).sum())
    if too_long:
        raise MemAttnError(
            f"{too_long} of {len(sizes)} blocks have more tokens than the model's maximum of "
            f"{max_positions}; give --tokens-per-sample {max_positions} or less and "
            "--sample-break-mode none"
        )
    return dataloader(self, dataset, *args, max_positions=max_positions, **kwargs)
