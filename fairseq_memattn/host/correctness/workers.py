"""The worker processes that load a data set's batches, and the threads that fetch them ahead."""

import atexit
import os
import queue
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
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


def begin_with_new_workers(
    next_epoch_itr: Callable[..., Any],
    self: Any,
    shuffle: bool = True,
    fix_batches_to_gpus: bool = False,
    set_dataset_epoch: bool = True,
) -> Any:
    """Workers know the epoch, so that `masked_lm` masks other tokens in each.

    fairseq keeps the workers of the first epoch, and tells the number of a later one to the data
    set of the main process alone.
    """
    resumed = self._next_epoch_itr is not None  # in an epoch that the data set knows
    has_workers = self.num_workers > 0 and self.dataloader is not None
    if set_dataset_epoch and has_workers and not resumed:
        end_workers(self)
        self.dataloader = None
    return next_epoch_itr(self, shuffle, fix_batches_to_gpus, set_dataset_epoch)


def end_without_batch(report: Callable[..., None], error: Exception, batch: Any) -> None:
    """A worker that cannot send a batch ends, and the command with it.

    multiprocessing leaves it out, and the command waits for it without end: where too few files may
    be open, for one.
    """
    from torch.utils.data import get_worker_info

    if get_worker_info() is None:
        report(error, batch)
        return
    print(
        f"a worker cannot send a batch: {error}; `ulimit -n` or --num-workers 0 may help",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)


def stop_prefetching(consumer: type[Any]) -> type[Any]:
    """Threads that fetch batches stop before the interpreter exits.

    Under the interpreter's exit, a thread that is just then freeing a batch aborts the process:
    training that ends within an epoch, by `--max-update`, would now and then report failure after
    all was done and saved.
    """

    class BackgroundConsumer(consumer):
        def __init__(self, batches: Any, source: Any, *args: Any) -> None:
            super().__init__(batches, self._until_stopped(source), *args)
            self.stopped = False
            atexit.register(self.stop)

        def _until_stopped(self, source: Any) -> Iterator[Any]:
            for batch in source:
                if self.stopped:
                    break
                yield batch

        def run(self) -> None:
            super().run()
            atexit.unregister(self.stop)

        def stop(self) -> None:
            self.stopped = True
            while self.is_alive():
                with suppress(queue.Empty):  # it may wait for room
                    self._queue.get(timeout=0.01)

    return BackgroundConsumer
