"""Sizes, strides and tables of a launch of the kernels."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fairseq_memattn.attention.ops.abc.triton import forward

# Triton's interpreter, which runs kernels on a CPU, has no products of bfloat16.
INTERPRETED = not isinstance(forward.states, triton.JITFunction)


LONGEST_CHUNK = 64


class Sizes(NamedTuple):
    """The block sizes of the kernels, which follow from D, M and the dtype.

    The kernels of chunks compute a block of slots at a time. They sum products over D in tiles,
    and their results over D in two halves.
    """

    chunk: int
    half: int
    block_m: int
    tile: int
    scan_d: int
    scan_m: int
    warps: int


def sizes(width: int, slots: int, dtype: torch.dtype) -> Sizes:
    """Blocks for the shared memory and the registers of one multiprocessor."""
    is_wide = width > 128
    if dtype == torch.float32:
        chunk, block_m, tile = (16, 16, 32) if is_wide else (32, 16, block(width) // 2)
    elif dtype == torch.float16:
        chunk, block_m, tile = (16, 32, 32) if is_wide else (64, 16, min(32, block(width) // 2))
        chunk = 32 if width <= 16 else chunk
    else:
        chunk, block_m, tile = (32, 64, 128) if is_wide else (64, 16, 32)
    return Sizes(
        chunk=chunk,
        half=max(16, block(width) // 2),
        block_m=block_m,
        tile=max(16, min(tile, block(width))),
        scan_d=min(block(width), 32 if dtype == torch.float32 else 64),
        scan_m=min(block(slots), 16 if dtype == torch.float16 else 32),
        warps=8,
    )


def block(size: int) -> int:
    """The smallest block of a size that the products of Triton take."""
    return max(16, 1 << (size - 1).bit_length())


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


@dataclass(frozen=True)
class Launch:
    """The sizes, strides and tables that the kernels of one call share."""

    q: Tensor
    control: Tensor
    padding: Tensor | None
    cu_seqlens: Tensor | None
    normalised: bool
    all_heads: int = 0
    """H of the outputs, of whose heads q has all (0) or some."""

    @cached_property
    def sizes(self) -> Sizes:
        return sizes(self.q.shape[3], self.control.shape[3], self.q.dtype)

    @property
    def heads(self) -> int:
        return self.all_heads or self.q.shape[1]

    @property
    def sharing(self) -> int:
        """How many heads of q share a head of the control."""
        return self.q.shape[1] // self.control.shape[1]

    @property
    def sequences(self) -> int:
        return self.q.shape[0] if self.cu_seqlens is None else self.cu_seqlens.shape[0] - 1

    @property
    def chunks(self) -> int:
        """Of a row of the batch, without `cu_seqlens`."""
        return -(-self.q.shape[2] // self.sizes.chunk)

    @property
    def total_chunks(self) -> int:
        """G; with `cu_seqlens` at least as many as there are."""
        if self.cu_seqlens is None:
            return self.q.shape[0] * self.chunks
        return self.q.shape[2] // self.sizes.chunk + self.sequences

    @property
    def is_centred(self) -> bool:
        """Whether the backward pass takes keys and values without their means."""
        return self.normalised and self.q.dtype != torch.float32

    @cached_property
    def tables(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Ends and first chunks of sequences (N + 1,), starts and ends of chunks (G,)."""
        if self.cu_seqlens is None:
            return (self.q,) * 4
        # Nobody has read the ends; a kernel must not write outside its tensors.
        size, ends = self.sizes.chunk, self.cu_seqlens.clamp(0, self.q.shape[2]).to(torch.int32)
        first = torch.zeros_like(ends)
        first[1:] = ((ends.diff() + size - 1) // size).cumsum(0)
        chunk = torch.arange(self.total_chunks, dtype=torch.int32, device=ends.device)
        sequence = torch.searchsorted(first[1:], chunk, right=True).clamp(max=self.sequences - 1)
        starts = ends[sequence] + (chunk - first[sequence]) * size
        return ends, first, starts, ends[sequence + 1]

    @property
    def flags(self) -> dict[str, Any]:
        return {
            "D": self.q.shape[3],
            "M": self.control.shape[3],
            "C": self.sizes.chunk,
            "NORMALISED": self.normalised,
            "PADDED": self.padding is not None,
            "PACKED": self.cu_seqlens is not None,
            **precision(self.q.dtype),
        }

    @property
    def mask(self) -> Tensor:
        return self.q if self.padding is None else self.padding.contiguous().view(torch.uint8)

    def scan(self, kernel: Any, *args: Any, **flags: bool) -> None:
        """Runs a kernel with a program for each sequence, head and tile of a memory."""
        size, heads = self.sizes, self.q.shape[1]
        tiles = triton.cdiv(self.q.shape[3], size.scan_d)
        tiles *= triton.cdiv(self.control.shape[3], size.scan_m)
        ends, first, _, _ = self.tables
        with torch.cuda.device_of(self.q):
            kernel[(self.sequences * heads, tiles)](
                *args,
                *(ends, first, self.q.shape[2], self.chunks, self.total_chunks),
                *(heads, self.control.shape[1]),
                **self.flags,
                **flags,
                BLOCK_D=size.scan_d,
                BLOCK_M=size.scan_m,
                num_warps=size.warps,
            )

    def each_chunk(
        self, kernel: Any, *args: Any, last: tuple[float, ...] = (), **flags: bool
    ) -> None:
        """Runs both forms of a kernel with a program for each chunk and head."""
        size, heads = self.sizes, self.q.shape[1]
        _, _, starts, ends = self.tables
        for is_factored in (True, False) if self.normalised else (True,):
            with torch.cuda.device_of(self.q):
                kernel[(self.total_chunks, heads)](
                    *args,
                    *(starts, ends, self.q.shape[2], self.chunks, self.total_chunks),
                    *(self.heads, self.control.shape[1]),
                    *last,
                    **self.flags,
                    **flags,
                    FACTORED=is_factored,
                    TILE=size.tile,
                    TOKENS=of_tokens(self.q.dtype),
                    HALF=size.half,
                    BLOCK_M=size.block_m,
                    num_warps=size.warps,
                )

    def groups_of_heads(self) -> list[slice]:
        """Of so many heads that the backward pass takes at most twice the bytes of the inputs."""
        batch, heads, length, width = self.q.shape
        slots, size = self.control.shape[3], self.of_memories.itemsize
        of_a_head = 2 * batch * length * slots * size  # read weights and gradients of logits
        of_a_head += 2 * self.total_chunks * slots * (width * size + 4)  # memories and masses
        of_a_head += 2 * self.q.nbytes // heads if self.is_centred else 0
        inputs = 3 * self.q.nbytes + self.control.nbytes
        step = min(heads, max(1, 2 * inputs // of_a_head))
        return [slice(head, min(heads, head + step)) for head in range(0, heads, step)]

    def choose(self, x: Tensor, heads: slice, dim: int = 1) -> Tensor:
        """Some heads of a tensor that has all of them, or one that they share."""
        if x.shape[dim] != self.q.shape[1]:
            return x
        return x.narrow(dim, heads.start, heads.stop - heads.start)

    def of_heads(self, heads: slice) -> "Launch":
        q, control = (self.choose(x, heads) for x in (self.q, self.control))
        return replace(self, q=q, control=control, all_heads=self.heads)

    @property
    def of_memories(self) -> torch.dtype:
        """The dtype of the products with memories."""
        return torch.bfloat16 if self.q.dtype == torch.bfloat16 else torch.float32

    @property
    def gradient_of_control(self) -> torch.dtype:
        return self.control.dtype if self.control.dtype == self.of_memories else torch.float32

    def memories(self) -> Tensor:
        """(H, G, M, D)."""
        shape = (self.q.shape[1], self.total_chunks, self.control.shape[3], self.q.shape[3])
        return self.q.new_empty(shape, dtype=self.of_memories)

    def masses(self, heads: int) -> Tensor:
        """(heads, G, M)."""
        shape = (heads, self.total_chunks, self.control.shape[3])
        return self.q.new_empty(shape, dtype=torch.float32)

    def forms(self) -> Tensor:
        """(h, G), not 0 for the chunks that are not factored."""
        return self.q.new_zeros((self.control.shape[1], self.total_chunks), dtype=torch.int8)

    def find_steep(self, before: Tensor, after: Tensor) -> Tensor:
        """Which chunks (h, G) are not factored."""
        steep = self.forms()
        if not self.normalised:
            return steep
        flags, s = self.flags, self.control
        _, _, starts, ends = self.tables
        with torch.cuda.device_of(self.q):
            forward.find_steep[(self.total_chunks, s.shape[1])](
                *(s, self.mask, before, after, steep, *s.stride()[:3]),
                *(starts, ends, self.q.shape[2], self.chunks, self.total_chunks),
                **{name: flags[name] for name in ("M", "C", "PADDED", "PACKED")},
                BLOCK_M=self.sizes.block_m,
                num_warps=4,
            )
        return steep

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

    def states(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values (N, H, M, D) and normalisers (N, h, M) of each sequence."""
        shape = (self.sequences, self.q.shape[1], self.control.shape[3], self.q.shape[3])
        keys = self.q.new_empty(shape, dtype=torch.float32)
        mass = keys.new_empty((self.sequences, self.control.shape[1], self.control.shape[3]))
        return keys, torch.empty_like(keys), mass


def rows_contiguous(x: Tensor) -> Tensor:
    """The kernels take any strides but that of the last axis; a chunk's offsets have 32 bits."""
    is_taken = x.stride(3) == 1 and x.stride(2) * LONGEST_CHUNK < 2**31
    return x if is_taken else x.contiguous()


def strides_of(*tensors: Tensor) -> list[int]:
    return [stride for x in tensors for stride in x.stride()[:3]]
