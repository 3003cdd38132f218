"""The worker processes that load a data set's batches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def end_workers(batches: Any) -> None:
    """Ends the worker processes of batches that nobody will read any more.

    Otherwise they end with the collector of cyclic garbage, which waits five seconds for them.

    batches: an iterator of fairseq, or None
    """
    loader = getattr(batches, "dataloader", None)
    workers = getattr(loader, "_iterator", None)
    if workers is not None:
        workers._shutdown_workers()


def replace_batches(kept: dict[str, Any], name: str, batches: Any) -> Any:
    """Keeps batches as those of a name, and ends the workers of those that they replace."""
    earlier, kept[name] = kept.get(name), batches
    if earlier is not batches:
        end_workers(earlier)
    return batches


def begin_with_new_workers(next_epoch_itr: Callable[..., Any]) -> Callable[..., Any]:
    """`EpochBatchIterator.next_epoch_itr`, which starts workers that know the epoch's number.

    fairseq keeps the workers of the first epoch, and tells the number of a later one to the data
    set of the main process alone: `masked_lm` then masks the same tokens in every epoch.
    """

    @functools.wraps(next_epoch_itr)
    def next_epoch_itr_(
        self: Any,
        shuffle: bool = True,
        fix_batches_to_gpus: bool = False,
        set_dataset_epoch: bool = True,
    ) -> Any:
        resumed = self._next_epoch_itr is not None  # in an epoch that the data set knows
        has_workers = self.num_workers > 0 and self.dataloader is not None
        if set_dataset_epoch and has_workers and not resumed:
            end_workers(self)
            self.dataloader = None
        return next_epoch_itr(self, shuffle, fix_batches_to_gpus, set_dataset_epoch)

    return next_epoch_itr_
