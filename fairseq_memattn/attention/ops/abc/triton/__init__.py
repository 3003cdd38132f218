"""The causal form of ABC and its decoding step by Triton kernels, for inputs on a GPU.

The equations and names are those of `chunked.py`: fraction F, gain Z, kept = D Z (what is left of
the memory before the chunk at position t), and F, Z, kept hold a number for each position and slot.

    masses            one program a chunk: the normalisers of its tokens
    scan_masses       goes through the chunks of a sequence; the normalisers around each
    states            goes through the chunks of a segment; what it adds to the memories, and in a
                      second run the memories before each chunk
    scan_segments     goes through the segments of a sequence; the memories before each
    find_steep        one program a chunk: which chunks need exponentials of differences
    attend            one program a chunk: the output
    mean_gradients    one program a chunk: <p, dp>, where the slots take more than one block
    attend_queries    one program a chunk: dq, p, da, and the part of ds that is -y
    states_back       as `states`, backwards; dH, dG, dU at the end of each chunk
    attend_tokens     one program a chunk: dv and its part of ds, then dk and its part
    step              one program a head: writes one token, reads, and updates the memory

Within a chunk the product Z_t F_j is formed from its factors (FACTORED) where Z stays below
exp(60), and else as exp(s_j - z_t), one j after another: `spread`, `pair_weights`, `gather`. The
kernels of chunks have both forms, so that the host never waits to know which one a chunk has.

A segment has SEGMENT chunks, and the programs of all segments run side by side. Where no sequence
can have more than two segments, `states` runs once for each sequence. A chunk never extends over
the end of a sequence. With PACKED, chunk g holds the positions from chunk_starts[g] to
chunk_ends[g] of row 0; chunks without positions do nothing. Without it, every row of the batch has
`chunks` chunks.

`torch.compile` and CUDA graphs accept the operators: nothing waits for the device, and every size
follows from shapes.
"""

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from fairseq_memattn.attention.ops.abc.triton import launch
from fairseq_memattn.attention.ops.abc.triton.causal import abc_causal
from fairseq_memattn.attention.ops.abc.triton.steps import abc_step, abc_step_
from fairseq_memattn.attention.ops.common import MemoryState


def causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    control: Tensor,
    key_padding_mask: Tensor | None,
    state: MemoryState | None,
    scale: float | None,
    *,
    normalised: bool = True,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, MemoryState]:
    """ABC over T positions from a given memory, or from an empty one.

    q, k, v: (B, H, T, D); control: (B, H or 1, T, M), log alpha, or phi that nothing divides if not
        normalised; key_padding_mask: (B, T); state: of every sequence
    cu_seqlens: (N + 1,), where B is 1 and row 0 holds N sequences one after another: sequence n
        from cu_seqlens[n] to cu_seqlens[n + 1]

    Returns the output in q's dtype and the memories after the last positions.

    Raises ValueError for tensors on a CPU, unless Triton interprets the kernels.
    """
    _check_device(q)
    _refuse_tangents(q, k, v, control, *(state or ()))
    scale = q.shape[3] ** -0.5 if scale is None else scale
    start = (None,) * 3 if state is None else tuple(state)
    out, keys, values, log_mass, *_ = abc_causal(
        q, k, v, control, key_padding_mask, *start, cu_seqlens, scale, normalised
    )
    return out, MemoryState(keys, values, log_mass)


def _check_device(q: Tensor) -> None:
    if not (q.is_cuda or launch.INTERPRETED):
        raise ValueError(
            f"the backend triton needs tensors on a GPU, but `q` is on {q.device} instead; "
            "TRITON_INTERPRET=1 runs its kernels on a CPU, slowly."
        )


def _refuse_tangents(*tensors: Tensor) -> None:
    """Raises RuntimeError for derivatives in forward mode, which an operator of torch drops."""
    if torch.compiler.is_compiling():
        return
    if any(unpack_dual(x).tangent is not None for x in tensors):
        raise RuntimeError(
            "the backend triton has no derivatives in forward mode (torch.func.jvp, jacfwd); "
            'compute them in use_backend("naive").'
        )


def step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    control: Tensor,
    key_padding_mask: Tensor | None,
    state: MemoryState,
    scale: float | None,
    *,
    normalised: bool = True,
    in_place: bool = False,
) -> tuple[Tensor, MemoryState]:
    """One position in one kernel: `causal_attention` for T = 1, without gradients.

    in_place: overwrites the state, whose tensors must be contiguous, and returns it
    """
    _check_device(q)
    _refuse_tangents(q, k, v, control, *state)
    inputs = (q, k, v, control, key_padding_mask)
    scale = q.shape[3] ** -0.5 if scale is None else scale
    if in_place:
        return abc_step_(*inputs, *state, scale, normalised), state
    out, *after = abc_step(*inputs, *state, scale, normalised)
    return out, MemoryState(*after)
