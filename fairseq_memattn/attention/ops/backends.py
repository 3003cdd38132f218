"""Which implementation of an operation runs."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

F = TypeVar("F", bound=Callable[..., object])

NAMES = ("chunked", "naive", "triton")
# The values of MEMATTN_BACKEND.
OF_ENVIRONMENT = {"": None, "torch": "chunked", "triton": "triton"}
LARGEST = 256  # D and M of the kernels
MIN_CAPABILITY = 8  # major, of GPUs that multiply bfloat16 and TF32
KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
OLDEST_TRITON = (3, 3)  # 3.2 aborts the process when it compiles the kernels for some GPUs


def _has_triton() -> bool:
    if find_spec("triton") is None:
        return False
    try:
        found = version("triton")
    except PackageNotFoundError:  # that of torch's nightly builds has another name
        return True
    return tuple(int(part) for part in found.split(".")[:2]) >= OLDEST_TRITON


HAS_TRITON = _has_triton()


def _from_environment() -> str | None:
    name = os.environ.get("MEMATTN_BACKEND", "")
    if name not in OF_ENVIRONMENT:
        raise ValueError(f"MEMATTN_BACKEND must be torch or triton, but is {name!r} instead.")
    return _installed(OF_ENVIRONMENT[name])


def _installed(name: str | None) -> str | None:
    if name == "triton" and not HAS_TRITON:
        oldest = ".".join(map(str, OLDEST_TRITON))
        raise ValueError(
            f"the backend triton needs the package triton, {oldest} or newer, but finds none."
        )
    return name


class _Forced:
    """The name that `use_backend` or MEMATTN_BACKEND forces; None lets the operation choose.

    blocks: the names of those of `use_backend` that have begun and not ended, the last one last.
        Several threads change it, by `append` and `remove` alone
    """

    of_environment: str | None = _from_environment()
    blocks: ClassVar[list[str | None]] = []

    @classmethod
    def name(cls) -> str | None:
        return [cls.of_environment, *cls.blocks][-1]


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Forces one implementation of every operation that has several, for tests and benchmarks.

    name: "chunked" the fast form in parallel chunks, "naive" one position after another, "triton"
        kernels for a GPU, where an operation has them, and "chunked" elsewhere. The setting holds
        for all threads. The environment variable MEMATTN_BACKEND, torch (that is chunked) or
        triton, sets it for a whole program.

    Raises ValueError for another name, and for "triton" where triton is not installed.
    """
    if name not in NAMES:
        raise ValueError(f"`name` must be one of {', '.join(NAMES)}, but is {name!r} instead.")
    _Forced.blocks.append(_installed(name))
    try:
        yield
    finally:
        _Forced.blocks.remove(name)


def choose(backends: Mapping[str, F], q: Tensor, slots: int, needs_gradient: bool = False) -> F:
    """The implementation for queries q: that of `chosen_backend`."""
    return backends[chosen_backend(q, slots, needs_gradient)]


def chosen_backend(q: Tensor, slots: int, needs_gradient: bool = False) -> str:
    """The name of what runs for queries q: the forced form, or else the fastest on their device.

    Looks at the device, dtype and shapes alone, so that a GPU is never waited for.

    q: (B, H, T, D); slots: M
    needs_gradient: of an operation whose kernel has none: a decoding step of one position

    Returns "chunked", "naive" or "triton", as in `use_backend`.
    """
    name = _Forced.name() or ("triton" if HAS_TRITON and _runs_kernels(q.device) else "chunked")
    if name == "triton" and (needs_gradient or not _fits_kernels(q, slots)):
        name = "chunked"
    return name


def _runs_kernels(device: torch.device) -> bool:
    if device.type != "cuda" or torch.version.hip:  # AMD's GPUs have other numbers and products
        return False
    # torch.compile makes the properties of a device constants.
    return bool(torch.cuda.get_device_properties(device).major >= MIN_CAPABILITY)


def _fits_kernels(q: Tensor, slots: int) -> bool:
    """Whether the kernels compute in these sizes and this dtype."""
    return q.dtype in KERNEL_DTYPES and max(q.shape[3], slots) <= LARGEST


def needs_gradient(*tensors: Tensor) -> bool:
    """Whether autograd records what is computed from the tensors."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
