"""Work that pytest-xdist's workers share: the first that needs it does it, the others wait."""

import fcntl
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


class Once:
    """once(name, work) is what work(folder) returns; one call of all workers does the work.

    folder: an empty one for the files that the work leaves behind
    The result is pickled. A name stands for one piece of work in a run of pytest.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, name: str, work: Callable[[Path], Result]) -> Result:
        folder, result = self.root / name, self.root / f"{name}.pickle"
        with (self.root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                folder.mkdir()  # fails where another worker has failed before
                result.write_bytes(pickle.dumps(work(folder)))
            made: Result = pickle.loads(result.read_bytes())
        return made
