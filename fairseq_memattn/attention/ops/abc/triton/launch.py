"""The launches of the kernels, planned once for each shape."""

import math
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from fairseq_memattn.attention.ops.abc.triton import kernels

# Triton's interpreter, which runs kernels on a CPU, has no products of bfloat16.
INTERPRETED = not isinstance(kernels.attend, triton.JITFunction)

# A compiled kernel is launched by itself, without what Triton does to find it. Newer versions of
# Triton may have other arguments.
QUICK = not INTERPRETED and triton.__version__ in ("3.6.0", "3.9.0")
Ready = dict[tuple[Any, ...], Any] | None

CHUNK = 64
MOST = 2.9  # of the bytes of the inputs
NARROW = 32  # rows of products that are formed without wgmma


class Sizes(NamedTuple):
    """The block sizes of the kernels, which follow from D, M and the dtype.

    chunk, tile: positions of a program, and dimensions of D at a time: the rows of all products
    width, slots: D and M as memories are stored
    scan: dimensions of a program that goes through a sequence
    """

    chunk: int
    tile: int
    width: int
    slots: int
    scan: int
    warps: int
    scan_warps: int


def sizes(width: int, slots: int, dtype: torch.dtype, wgmma: bool = True) -> Sizes:
    """wgmma: whether products may have 64 rows, which Triton forms by groups of warps on Hopper."""
    rows = CHUNK if wgmma and dtype == torch.bfloat16 else NARROW
    block_m = block(slots)
    chunk = 16 if block_m > 128 else rows
    tile = min(rows, block(width))
    scan = min(tile, max(4, 1024 // block_m))
    return Sizes(
        chunk=chunk,
        tile=tile,
        width=-(-width // tile) * tile,
        slots=block_m,
        scan=scan,
        warps=4 if dtype == torch.bfloat16 and block_m <= 64 else 8,
        # Of what a program loads and stores in one place, each thread has a part of its own.
        scan_warps=4 if scan * block_m >= 1024 else 1,
    )


def block(size: int) -> int:
    """The smallest block of a size that the products of Triton take."""
    return max(16, 1 << (size - 1).bit_length())


def precision(dtype: torch.dtype) -> dict[str, Any]:
    """The dtype of products, and how those of float32 are formed.

    The range of float16 is too small for gains of up to exp(60).
    """
    is_bf16 = dtype == torch.bfloat16 and not INTERPRETED
    return {
        "WIDE": tl.bfloat16 if is_bf16 else tl.float32,
        "IP": "tf32" if dtype == torch.float16 else "ieee",
    }


def check_inputs(*tensors: Tensor) -> None:
    """Raises ValueError for tensors on a CPU, unless Triton interprets the kernels.

    Raises RuntimeError for derivatives in forward mode, which an operator of torch drops.
    """
    q = tensors[0]
    if not (q.is_cuda or INTERPRETED):
        raise ValueError(
            f"the backend triton needs tensors on a GPU, but `q` is on {q.device} instead; "
            "TRITON_INTERPRET=1 runs its kernels on a CPU, slowly."
        )
    if torch.compiler.is_compiling():
        return
    if any(unpack_dual(x).tangent is not None for x in tensors):
        raise RuntimeError(
            "the backend triton has no derivatives in forward mode (torch.func.jvp, jacfwd); "
            'compute them in use_backend("naive").'
        )


class Shape(NamedTuple):
    """What a plan is made for. sequences: N of packed sequences, or 0."""

    batch: int
    heads: int
    length: int
    width: int
    control_heads: int
    slots: int
    dtype: torch.dtype
    sequences: int
    normalised: bool

    @classmethod
    def of(
        cls, q: Tensor, log_alpha: Tensor, cu_seqlens: Tensor | None, normalised: bool
    ) -> "Shape":
        batch, heads, length, width = q.shape
        _, control_heads, _, slots = log_alpha.shape
        packed = 0 if cu_seqlens is None else cu_seqlens.shape[0] - 1
        sizes = (batch, heads, length, width, control_heads, slots)
        return cls(*sizes, q.dtype, packed, normalised)


class Plan:
    """Sizes of tensors, grids and constants of the kernels for one shape."""

    def __init__(self, shape: Shape, wgmma: bool = True) -> None:
        self.shape = shape
        self.blocks = size = sizes(shape.width, shape.slots, shape.dtype, wgmma)
        self.chunks = -(-shape.length // size.chunk)
        self.sequences = shape.sequences or shape.batch
        self.total = shape.batch * self.chunks
        if shape.sequences:  # at least as many as there are
            self.total = shape.length // size.chunk + shape.sequences
        heads, is_bf16 = shape.heads, shape.dtype == torch.bfloat16
        self.numbers = (shape.length, self.chunks, self.total, self.sequences, heads)
        self.of_memories = (heads, self.total, 2, size.width, size.slots)
        of_chunk = 4 * size.slots + 4 * size.width
        self.of_floats = heads * (self.total * of_chunk + self.sequences * 2 * size.width)
        self.of_state = (self.sequences, heads, shape.slots, shape.width)
        self.of_mass = (self.sequences, shape.control_heads, shape.slots)
        self.gradients = torch.bfloat16 if is_bf16 else torch.float32
        self.memories = shape.dtype if shape.normalised or is_bf16 else torch.float32
        common = {
            "D": shape.width, "M": shape.slots, "C": size.chunk, "DP": size.width,
            "BM": size.slots, "NORMALISED": shape.normalised, "PACKED": shape.sequences > 0,
        }  # fmt: skip
        self.of_chunks = {**common, "TILE": size.tile, **precision(shape.dtype)}
        self.of_scans = {**common, "BD": size.scan, "STAGES": 8}
        self.tiles = 2 * size.width // size.scan
        self._ready: dict[tuple[Any, ...], dict[tuple[Any, ...], Any]] = {}

    @cached_property
    def group(self) -> int:
        """The heads whose gradients are computed at a time.

        As many as keep what the forward pass keeps, and the backward pass takes, below `MOST`.
        """
        shape, size = self.shape, self.blocks
        positions = shape.batch * shape.length * shape.dtype.itemsize
        inputs = positions * (3 * shape.heads * shape.width + shape.control_heads * shape.slots)
        kept = positions * shape.heads * shape.width + 4 * self.of_floats
        kept += math.prod(self.of_memories) * self.memories.itemsize
        of_chunk = 2 * size.width * size.slots + 2 * size.chunk * size.slots
        of_head = self.total * (of_chunk * self.gradients.itemsize + 8 * size.slots)
        most = max(1, int(MOST * inputs - kept) // of_head)
        return -(-shape.heads // -(-shape.heads // most))

    def each_chunk(
        self, kernel: Any, ready: Ready, *args: Any, heads: int = 0, **flags: bool
    ) -> None:
        grid = (self.total, heads or self.shape.heads, 1)
        run(ready, kernel, grid, args, self.of_chunks, flags, self.blocks.warps)

    def each_sequence(
        self, kernel: Any, ready: Ready, *args: Any, heads: int = 0, **flags: bool
    ) -> None:
        grid = (self.sequences, heads or self.shape.heads, self.tiles)
        run(ready, kernel, grid, args, self.of_scans, flags, self.blocks.scan_warps)

    def ready(self, strides: tuple[int, ...], *tensors: Tensor) -> Ready:
        """The compiled kernels for inputs of these strides; None for addresses of any kind."""
        if not QUICK or any(x.data_ptr() % 16 for x in tensors):
            return None
        key = (tensors[0].device, *strides, *(x.dtype for x in tensors))
        return self._ready.setdefault(key, {})


plan_of = lru_cache(maxsize=4096)(Plan)


def run(
    ready: Ready,
    kernel: Any,
    grid: tuple[int, ...],
    args: tuple[Any, ...],
    constants: dict[str, Any],
    flags: dict[str, bool],
    warps: int,
) -> None:
    """Launches a kernel; one that the same plan has launched before, with little Python."""
    if ready is None:
        kernel[grid](*args, **constants, **flags, num_warps=warps)
        return
    name = (kernel.__name__, grid, *flags.values())
    if name not in ready:
        constants = constants | flags
        last = tuple(constants[key] for key in kernel.arg_names if key in constants)
        ready[name] = kernel[grid](*args, **constants, num_warps=warps)[grid], last
        return
    launch, last = ready[name]
    launch(*args, *last)


def rows_contiguous(x: Tensor) -> Tensor:
    """The kernels take any strides but that of the last axis; a chunk's offsets have 32 bits."""
    is_taken = x.stride(3) == 1 and x.stride(2) * CHUNK < 2**31
    return x if is_taken else x.contiguous()
