"""The threads that fetch batches ahead."""

from __future__ import annotations

import atexit
import queue
from collections.abc import Iterator
from contextlib import suppress
from typing import Any


def stop_prefetching(consumer: type[Any]) -> type[Any]:
    """`iterators.BackgroundConsumer`, which stops before the interpreter is taken down.

    fairseq leaves that to the interpreter, under which a thread that is just then freeing a batch
    aborts the process: training that ends within an epoch, by `--max-update`, would now and then
    report failure after all was done and saved.
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
