"""Sizes, strides and tables of a launch of the kernels."""

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from fairseq_memattn.attention.ops.abc.triton import forward

# Triton's interpreter, which runs kernels on a CPU, has no products of bfloat16.
INTERPRETED = not isinstance(forward.attend, triton.JITFunction)

LONGEST_CHUNK = 32
SEGMENT = 16  # chunks, whose memories one program computes one after another


class Sizes(NamedTuple):
    """The block sizes of the kernels, which follow from D, M and the dtype.

    The kernels of chunks compute a block of slots at a time. They sum products over D in tiles,
    and their results over D in two halves.
    """

    chunk: int
    half: int
    block_m: int
    tile: int
    memory_d: int
    memory_m: int
    warps: int


def sizes(width: int, slots: int, dtype: torch.dtype) -> Sizes:
    """The blocks fit the shared memory of one multiprocessor.

    The kernels of chunks have few warps: in bfloat16 with D = 64, two were faster on an H200 than
    eight, although some registers spill. No product has 64 rows: Triton would form it by the
    products of warp groups of Hopper GPUs (wgmma), which ptxas 12.8.93 of Triton 3.6 assembles
    wrongly in some block sizes (benchmarks/README.md).
    """
    is_narrow, is_wide = width <= 64, width > 128
    chunk = 16 if is_wide and dtype != torch.bfloat16 else 32
    warps = 2 if is_narrow and dtype != torch.float32 else 4
    if dtype == torch.float32:
        block_m, tile = 32 if is_narrow else 16, 32 if is_wide else block(width) // 2
    elif dtype == torch.float16:
        block_m, tile = 32, 32
    else:
        block_m, tile = 32 if is_narrow and slots > 64 else 64, max(32, block(width) // 2)
    return Sizes(
        chunk=chunk,
        half=max(16, block(width) // 2),
        block_m=min(block_m, block(slots)),
        tile=max(16, min(tile, block(width))),
        memory_d=min(block(width), 64),
        memory_m=min(block(slots), 32),
        warps=warps,
    )


def block(size: int) -> int:
    """The smallest block of a size that the products of Triton take."""
    return max(16, 1 << (size - 1).bit_length())


def scan_blocks(width: int, slots: int) -> dict[str, int]:
    """Small tiles, so that there are many programs: a step of a scan waits for memory."""
    return {"BLOCK_D": min(block(width), 32), "BLOCK_M": min(block(slots), 16)}


def step_blocks(width: int, slots: int) -> dict[str, int]:
    """Blocks and warps of a decoding step: so many slots at a time that their memory fits."""
    block_d = block(width)
    block_m = min(block(slots), max(16, 8192 // block_d))
    return {
        "BLOCK_D": block_d,
        "BLOCK_M": block_m,
        "num_warps": 8 if block_d * block_m > 4096 else 4,
    }


def precision(dtype: torch.dtype) -> dict[str, Any]:
    """The dtype of products with weights, and how products of float32 are formed.

    The range of float16 is too small for gains of up to exp(60).
    """
    is_bf16 = dtype == torch.bfloat16 and not INTERPRETED
    return {
        "WIDE": tl.bfloat16 if is_bf16 else tl.float32,
        "PRECISION": "tf32" if dtype == torch.float16 else "ieee",
    }


def of_tokens(dtype: torch.dtype) -> Any:
    """The dtype of products of queries with keys."""
    is_bf16 = dtype == torch.bfloat16 and INTERPRETED
    return tl.float32 if is_bf16 else getattr(tl, str(dtype).removeprefix("torch."))


@cache
def parameters(kernel: Any) -> frozenset[str]:
    return frozenset(kernel.arg_names)


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


@dataclass(frozen=True)
class Launch:
    """The sizes, strides and tables that the kernels of one call share."""

    q: Tensor
    control_heads: int
    """h, H or 1, the heads of the control."""
    slots: int
    padding: Tensor | None
    cu_seqlens: Tensor | None
    normalised: bool
    all_heads: int = 0
    """H of the outputs, of whose heads q has all (0) or some."""

    @cached_property
    def sizes(self) -> Sizes:
        return sizes(self.q.shape[3], self.slots, self.q.dtype)

    @cached_property
    def heads(self) -> int:
        return self.all_heads or self.q.shape[1]

    @cached_property
    def sharing(self) -> int:
        """How many heads of q share a head of the control."""
        return self.q.shape[1] // self.control_heads

    @cached_property
    def sequences(self) -> int:
        return self.q.shape[0] if self.cu_seqlens is None else self.cu_seqlens.shape[0] - 1

    @cached_property
    def chunks(self) -> int:
        """Of a row of the batch, without `cu_seqlens`."""
        return -(-self.q.shape[2] // self.sizes.chunk)

    @cached_property
    def total_chunks(self) -> int:
        """G; with `cu_seqlens` at least as many as there are."""
        if self.cu_seqlens is None:
            return self.q.shape[0] * self.chunks
        return self.q.shape[2] // self.sizes.chunk + self.sequences

    @cached_property
    def is_centred(self) -> bool:
        """Whether the backward pass takes keys and values without their means."""
        return self.normalised and self.q.dtype != torch.float32

    @cached_property
    def is_divided(self) -> bool:
        """Whether sequences are divided into segments, which two of them would not be worth."""
        return self.q.shape[2] > 2 * SEGMENT * self.sizes.chunk

    @cached_property
    def segment(self) -> int:
        """S, the chunks of a segment, at most."""
        return SEGMENT if self.is_divided else 2 * SEGMENT

    @cached_property
    def segments(self) -> int:
        """Of a row of the batch, without `cu_seqlens`."""
        return -(-self.chunks // self.segment)

    @cached_property
    def total_segments(self) -> int:
        """Z; with `cu_seqlens` at least as many as there are."""
        if not self.is_divided:
            return self.sequences
        if self.cu_seqlens is None:
            return self.q.shape[0] * self.segments
        return self.total_chunks // SEGMENT + self.sequences

    @cached_property
    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """First chunks of sequences (N + 1,), starts and ends of chunks (G,)."""
        if self.cu_seqlens is None:
            return (self.q,) * 3
        # Nobody has read the ends; a kernel must not write outside its tensors.
        ends = self.cu_seqlens.clamp(0, self.q.shape[2]).cummax(0).values.to(torch.int32)
        first, sequence, place = self._divide(ends.diff(), self.sizes.chunk, self.total_chunks)
        return first, ends[sequence] + place, ends[sequence + 1]

    @cached_property
    def tables_of_segments(self) -> tuple[Tensor, Tensor, Tensor]:
        """First segments of sequences (N + 1,), first chunks of segments and their ends (Z,)."""
        if self.cu_seqlens is None:
            return (self.q,) * 3
        chunks = self.tables[0]
        if not self.is_divided:
            return chunks, chunks[:-1], chunks[1:]
        first, sequence, place = self._divide(chunks.diff(), SEGMENT, self.total_segments)
        starts = chunks[sequence] + place
        return first, starts, torch.minimum(starts + SEGMENT, chunks[sequence + 1])

    def _divide(self, lengths: Tensor, size: int, total: int) -> tuple[Tensor, Tensor, Tensor]:
        """Sequences (N,) in parts of a size.

        Returns the first parts of sequences (N + 1,), and of each of `total` parts the sequence
        and where it begins there. Further parts begin after the end of the last sequence.
        """
        first = lengths.new_zeros(lengths.shape[0] + 1)
        first[1:] = ((lengths + size - 1) // size).cumsum(0)
        part = torch.arange(total, dtype=torch.int32, device=lengths.device)
        sequence = torch.searchsorted(first[1:], part, right=True).clamp(max=self.sequences - 1)
        return first, sequence, (part - first[sequence]) * size

    @cached_property
    def flags(self) -> dict[str, Any]:
        return {
            "D": self.q.shape[3],
            "M": self.slots,
            "C": self.sizes.chunk,
            "S": self.segment,
            "NORMALISED": self.normalised,
            "PACKED": self.cu_seqlens is not None,
            **precision(self.q.dtype),
        }

    def run(
        self, kernel: Any, grid: tuple[int, ...], *args: Any, warps: int = 4, **flags: Any
    ) -> None:
        """Runs a kernel with those of `flags` that it takes, and with further ones."""
        names = parameters(kernel)
        taken = {name: flag for name, flag in self.flags.items() if name in names}
        with torch.cuda.device_of(self.q):
            kernel[grid](*args, **taken, **flags, num_warps=warps)

    @property
    def of_chunks(self) -> tuple[Any, ...]:
        """What kernels of a chunk take to find it."""
        _, starts, ends = self.tables
        return starts, ends, self.q.shape[2], self.chunks, self.total_chunks

    def each_segment(self, kernel: Any, *args: Any, **flags: bool) -> None:
        """Runs a kernel with a program for each segment, head and tile of a memory."""
        _, starts, ends = self.tables
        heads, block_d, block_m = self.q.shape[1], self.sizes.memory_d, self.sizes.memory_m
        self.run(
            kernel,
            (self.total_segments * heads, self._tiles(block_d, block_m)),
            *(*args, starts, ends, *self.tables_of_segments[1:]),
            *(self.q.shape[2], self.chunks, self.total_chunks, self.segments),
            *(heads, self.control_heads),
            BLOCK_D=block_d,
            BLOCK_M=block_m,
            **flags,
        )

    def scan_segments(self, *args: Any, **flags: bool) -> None:
        heads = self.q.shape[1]
        tile = scan_blocks(self.q.shape[3], self.slots)
        self.run(
            forward.scan_segments,
            (self.sequences * heads, self._tiles(*tile.values())),
            *(*args, *self.tables_of_segments),
            *(self.chunks, self.total_chunks, self.segments, heads, self.control_heads),
            **tile,
            **flags,
        )

    def _tiles(self, block_d: int, block_m: int) -> int:
        """Of a memory."""
        return -(-self.q.shape[3] // block_d) * -(-self.slots // block_m)

    def each_chunk(
        self, kernel: Any, *args: Any, last: tuple[float, ...] = (), **flags: bool
    ) -> None:
        """Runs a kernel with a program for each chunk and head."""
        size = self.sizes
        self.run(
            kernel,
            (self.total_chunks, self.q.shape[1]),
            *(*args, *self.of_chunks, self.heads, self.control_heads, *last),
            **flags,
            TILE=size.tile,
            TOKENS=of_tokens(self.q.dtype),
            HALF=size.half,
            BLOCK_M=size.block_m,
            warps=size.warps,
        )

    def groups_of_heads(self, inputs: int) -> list[slice]:
        """Of about equal size, whose backward passes take about 9/4 of the bytes of the inputs."""
        batch, heads, length, width = self.q.shape
        slots, size = self.slots, self.of_memories.itemsize
        of_a_head = 2 * batch * length * slots * size  # read weights and gradients of logits
        of_a_head += 2 * self.total_chunks * slots * (width * size + 4)  # memories and masses
        of_a_head += 2 * self.total_segments * slots * width * 4 if self.is_divided else 0
        of_a_head += 2 * self.q.nbytes // heads if self.is_centred else 0
        most = max(1, 9 * inputs // 4 // of_a_head)
        step = -(-heads // -(-heads // most))
        return [slice(head, min(heads, head + step)) for head in range(0, heads, step)]

    def choose(self, x: Tensor, heads: slice, dim: int = 1) -> Tensor:
        """Some heads of a tensor that has all of them, or one that they share."""
        if x.shape[dim] != self.q.shape[1] or heads == slice(0, x.shape[dim]):
            return x
        return x.narrow(dim, heads.start, heads.stop - heads.start)

    def of_heads(self, heads: slice) -> "Launch":
        if heads == slice(0, self.q.shape[1]):
            return self
        q = self.choose(self.q, heads)
        control_heads = q.shape[1] if self.sharing == 1 else self.control_heads
        part = replace(self, q=q, control_heads=control_heads, all_heads=self.heads)
        # What all heads share, and what a cached property keeps.
        for name in ("tables", "tables_of_segments") if self.cu_seqlens is not None else ():
            part.__dict__[name] = getattr(self, name)
        return part

    @property
    def unread(self) -> Tensor | None:
        """The positions (B, T) that no memory holds: padding, and what belongs to no sequence."""
        if self.cu_seqlens is None:
            return self.padding
        t = torch.arange(self.q.shape[2], device=self.q.device)
        return ((t < self.cu_seqlens[0]) | (t >= self.cu_seqlens[-1]))[None]

    @property
    def of_memories(self) -> torch.dtype:
        """The dtype of the products with memories."""
        return torch.bfloat16 if self.q.dtype == torch.bfloat16 else torch.float32

    def memories(self) -> Tensor:
        """(H, G, M, D)."""
        shape = (self.q.shape[1], self.total_chunks, self.slots, self.q.shape[3])
        return self.q.new_empty(shape, dtype=self.of_memories)

    def masses(self, heads: int) -> Tensor:
        """(heads, G, M)."""
        shape = (heads, self.total_chunks, self.slots)
        return self.q.new_empty(shape, dtype=torch.float32)

    def forms(self) -> Tensor:
        """(h, G), not 0 for the chunks that are not factored."""
        return self.q.new_zeros((self.control_heads, self.total_chunks), dtype=torch.int8)

    def by_head(self) -> Tensor:
        """(B, T, H)."""
        batch, heads, length, _ = self.q.shape
        return self.q.new_empty((batch, length, heads), dtype=torch.float32)

    def by_time(self, width: int, dtype: torch.dtype) -> Tensor:
        """(B, T, H, width): what the next layer, or the backward pass of the last one, reads.

        Zeros for the positions that belong to none of the packed sequences.
        """
        batch, heads, length, _ = self.q.shape
        make = self.q.new_empty if self.cu_seqlens is None else self.q.new_zeros
        return make((batch, length, heads, width), dtype=dtype)

    def of_segments(self) -> tuple[Tensor, Tensor]:
        """Memories (Z, H, M, D)."""
        shape = (self.total_segments, self.q.shape[1], self.slots, self.q.shape[3])
        keys, values = (self.q.new_empty(shape, dtype=torch.float32) for _ in range(2))
        return keys, values

    def states(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values (N, H, M, D) and normalisers (N, h, M) of each sequence."""
        shape = (self.sequences, self.q.shape[1], self.slots, self.q.shape[3])
        keys = self.q.new_empty(shape, dtype=torch.float32)
        mass = keys.new_empty((self.sequences, self.control_heads, self.slots))
        return keys, torch.empty_like(keys), mass


def rows_contiguous(x: Tensor) -> Tensor:
    """The kernels take any strides but that of the last axis; a chunk's offsets have 32 bits."""
    is_taken = x.stride(3) == 1 and x.stride(2) * LONGEST_CHUNK < 2**31
    return x if is_taken else x.contiguous()


def strides_of(*tensors: Tensor) -> list[int]:
    return [stride for x in tensors for stride in x.stride()[:3]]
