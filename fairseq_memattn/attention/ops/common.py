"""What the operations have in common.

The memory that they write and read, computation in float32, what is known of tensors on a GPU
without waiting for it, and which implementation runs.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import ClassVar, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

# Stands for log(0) in write logits and normalisers. Finite, so that the difference of two empty
# entries is 0 and not NaN; far below any logit, so that exp(EMPTY - logit) is exactly 0.
EMPTY = -1e30


def is_written(log_mass: Tensor) -> Tensor:
    """True where a write logit or a normaliser stands for something rather than for log(0)."""
    return log_mass > 0.5 * EMPTY


def mass_where(written: Tensor, dtype: torch.dtype) -> Tensor:
    """A log mass of 0 where something is written, and `EMPTY` elsewhere."""
    return torch.where(written, written.new_zeros((), dtype=dtype), EMPTY)


def joint_mass(a: Tensor, b: Tensor) -> Tensor:
    """log(exp(a) + exp(b)) of log masses.

    `torch.logaddexp` is faster, but its second derivatives are NaN where one of them is `EMPTY`.
    """
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        return torch.stack(torch.broadcast_tensors(a, b)).logsumexp(dim=0)
    return torch.logaddexp(a, b)


class MemoryState(NamedTuple):
    """A bounded memory after some prefix (ABC paper, equations 3 and 5, appendix B.1).

    Every tensor is batch first, in float32 (float64 for float64 inputs). Its size does not depend
    on the number of tokens.

    keys      (B, H, M, D): the normalised memory K~
    values    (B, H, M, D): the normalised memory V~
    log_mass  (B, H, M) or (B, 1, M): z = log sum_i alpha_i, per slot; `EMPTY` where nothing was
              ever written, and such a slot is never read
    """

    keys: Tensor
    values: Tensor
    log_mass: Tensor

    def reorder(self, new_order: Tensor) -> "MemoryState":
        """The rows new_order (B',) of the batch, which survive a beam step."""
        return type(self)(*(tensor.index_select(0, new_order) for tensor in self))

    @classmethod
    def empty(cls, k: Tensor, v: Tensor, log_alpha: Tensor) -> "MemoryState":
        """The memory before the first token, shaped after k, v (B,H,S,D) and log_alpha."""
        dtype = accumulation_dtype(k)
        batch, heads, _, width = k.shape
        slots = log_alpha.shape[-1]
        return cls(
            k.new_zeros(batch, heads, slots, width, dtype=dtype),
            v.new_zeros(batch, heads, slots, v.shape[-1], dtype=dtype),
            k.new_full((batch, log_alpha.shape[1], slots), EMPTY, dtype=dtype),
        )


def accumulation_dtype(x: Tensor) -> torch.dtype:
    """The dtype of normalisers and states: float32, or float64 for float64 inputs."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


S = TypeVar("S", bound=tuple[Tensor, ...])
P = ParamSpec("P")
R = TypeVar("R")


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Switches autocast off, which would compute normalisers and memories in half precision."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        device = tensors[0].device.type if tensors else "meta"  # for which there is no autocast
        # torch.amp.is_autocast_available breaks the graph of torch.compile in torch 2.11.
        if device == "meta" or not torch.is_autocast_enabled(device):
            return function(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(*args, **kwargs)

    return wrapped


def over_tokens(logits: Tensor) -> Tensor:
    """The softmax over the tokens of (..., S, M), whose sums torch forms exactly on the last axis.

    Over another axis it adds one term after another on a CPU.
    """
    return logits.transpose(-2, -1).softmax(dim=-1).transpose(-2, -1)


def omit_padding(x: Tensor, key_padding_mask: Tensor | None, nothing: float = 0.0) -> Tensor:
    """x (B, *, S, *), `nothing` at padding (B, S): -inf in log alpha, 0 in phi and in outputs."""
    if key_padding_mask is None:
        return x
    return x.masked_fill(key_padding_mask[:, None, :, None], nothing)


def unless_padding(padding: Tensor, after: S, before: S) -> S:
    """The state before a token in the rows whose token is padding (B,), and else that after it."""
    shapes = (padding.view(-1, *[1] * (x.dim() - 1)) for x in after)
    return type(after)(*map(torch.where, shapes, before, after))


SHORTEST = 1e-3


def unit_vectors(x: Tensor) -> Tensor:
    """x / max(|x|, SHORTEST) of vectors x (..., D), whose gradient is bounded."""
    return normalize(x, dim=-1, eps=SHORTEST)


def read_scale(q: Tensor, scale: float | None) -> float:
    """The scale of the read logits; None is D ** -0.5."""
    return float(q.shape[-1] ** -0.5) if scale is None else scale


def scaled(q: Tensor, scale: float | None) -> Tensor:
    """Queries times the scale of the read logits."""
    return q.to(accumulation_dtype(q)) * read_scale(q, scale)


# Devices that compute at once, so that reading a number costs nothing.
IMMEDIATE = {"cpu"}


def is_immediate(x: Tensor) -> bool:
    """Whether the numbers of x can be read without waiting; never while a graph is exported."""
    return x.device.type in IMMEDIATE and not torch.compiler.is_exporting()


def possibly_any(condition: Tensor) -> bool:
    """Whether any entry is True. On a GPU, and in `torch.export`, the answer is yes, unread."""
    return not is_immediate(condition) or bool(condition.any())


def on_device(x: Tensor, device: torch.device) -> Tensor:
    """x, which is on the CPU, on another device, to which it is copied without waiting."""
    if device.type == "cuda" and not torch.compiler.is_compiling():  # which cannot pin memory
        x = x.pin_memory()
    return x.to(device, non_blocking=True)


def constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers on a device, to which they are copied at the first call, without waiting."""
    # A trace must not keep its tensors.
    make = _constant.__wrapped__ if torch.compiler.is_compiling() else _constant
    return make(numbers, dtype, device)


@cache
def _constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return on_device(torch.tensor(numbers, dtype=dtype, device="cpu"), device)


F = TypeVar("F", bound=Callable[..., object])

NAMES = ("chunked", "naive", "triton")
# The values of MEMATTN_BACKEND.
OF_ENVIRONMENT = {"": None, "torch": "chunked", "triton": "triton"}
KERNEL_LIMIT = 256  # of D and M
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


class _Block:
    """A block of `use_backend`. Two of the same name are different."""

    def __init__(self, name: str | None) -> None:
        self.name = name


class _Forced:
    """The name that `use_backend` or MEMATTN_BACKEND forces; None lets the operation choose.

    blocks: those of `use_backend` that have begun and not ended, the last one last. Several threads
        change it, by `append` and `remove` alone
    """

    of_environment: str | None = _from_environment()
    blocks: ClassVar[list[_Block]] = []

    @classmethod
    def name(cls) -> str | None:
        blocks = [*cls.blocks]
        return blocks[-1].name if blocks else cls.of_environment


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
    block = _Block(_installed(name))
    _Forced.blocks.append(block)
    try:
        yield
    finally:
        _Forced.blocks.remove(block)


def choose(backends: Mapping[str, F], q: Tensor, slots: int, needs_gradient: bool = False) -> F:
    """The implementation for queries q: that of `chosen_backend`."""
    return backends[chosen_backend(q, slots, needs_gradient)]


def chosen_backend(q: Tensor, slots: int, needs_gradient: bool = False) -> str:
    """The name of what runs for queries q: the forced form, or else the fastest on their device.

    Looks at the device, dtype and shapes alone, so that a GPU is never waited for.

    q: (B, H, T, D); slots: M
    needs_gradient: of an operation whose kernel has none, a decoding step of one position; or that
        it has grouped queries, which this kernel does not take

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
    return q.dtype in KERNEL_DTYPES and max(q.shape[3], slots) <= KERNEL_LIMIT


def needs_gradient(*tensors: Tensor) -> bool:
    """Whether autograd records what is computed from the tensors."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
