"""Whether products of 64 rows are right on this GPU by this compiler.

On Hopper, Triton forms them by `wgmma`, which ptxas before CUDA 13 assembles wrongly for some block
sizes (benchmarks/README.md). Each width and number of slots is tried once for each GPU, in some
milliseconds beside compiling; where it is wrong, products have 32 rows, which are formed otherwise.
"""

import warnings
from functools import cache
from threading import Thread
from typing import Any

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.abc import chunked
from fairseq_memattn.attention.ops.common import MemoryState

HOPPER = 9
LENGTH = 130  # three chunks
WRONG = 0.04  # of the largest value; bfloat16 rounds by less than 0.01
tried: dict[tuple[torch.device, int, int], bool] = {}


def may_use_wgmma(device: torch.device, width: int, slots: int) -> bool:
    key = (device, width, slots)
    if key in tried:
        return tried[key]
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] != HOPPER:
        return tried.setdefault(key, True)
    if torch.cuda.is_current_stream_capturing():
        return False  # nothing can be compared while a graph is made
    # In a thread of its own autograd is on, which it is not inside an operator.
    thread = Thread(target=try_out, args=key)
    thread.start()
    thread.join()
    return tried[key]


def try_out(device: torch.device, width: int, slots: int) -> None:
    worst, tried[device, width, slots] = torch.inf, True
    try:
        with torch.cuda.device(device):
            worst = error(device, width, slots)
    finally:
        tried[device, width, slots] = worst <= WRONG
        if worst > WRONG:
            _warn(torch.cuda.get_device_name(device))


@cache
def _warn(name: str) -> None:
    warnings.warn(
        f"this compiler's wgmma products are wrong on {name}: kernels of some sizes use others, "
        "which are slower. Triton 3.9 or newer, or TRITON_PTXAS_PATH with the ptxas of CUDA 13, "
        "is right.",
        stacklevel=2,
    )


def error(device: torch.device, width: int, slots: int) -> float:
    """The largest error of the output and its gradients, relative to the largest value of each."""
    from fairseq_memattn.attention.ops.abc.triton.operators import backward, forward

    generator = torch.Generator().manual_seed(0)
    shapes = [(1, 2, LENGTH, size) for size in (width, width, width, slots, width)]
    drawn = [torch.randn(shape, generator=generator).bfloat16() for shape in shapes]
    q, k, v, log_alpha, grad = (x.to(device) for x in drawn)
    inputs, none, scale = (q, k, v, log_alpha), (None, None, None), width**-0.5
    out, _, keys, values, _, *kept = forward(*inputs, *none, None, scale, True, False)
    given: list[Any] = [grad, None, *none, *inputs, *none, None, keys, values, *kept, scale, True]
    grads = backward(*given)
    q, k, v, log_alpha = leaves = tuple(x.float().requires_grad_() for x in inputs)
    state = MemoryState.empty(k, v, log_alpha)
    expected, *_ = chunked.causal_sums(q, k, v, log_alpha, state, scale, None)
    wanted = torch.autograd.grad(expected, leaves, grad.float())
    pairs = zip((out, *grads), (expected, *wanted), strict=False)
    return max(_relative(found, exact) for found, exact in pairs)


def _relative(found: Tensor, exact: Tensor) -> float:
    worst = (found.float() - exact).abs().max() / exact.abs().max()
    return float(torch.nan_to_num(worst, nan=torch.inf))
