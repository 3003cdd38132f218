"""The operators of one decoding step, registered with torch."""

from typing import Any

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.abc.triton import decoding
from fairseq_memattn.attention.ops.abc.triton.launch import rows_contiguous, step_blocks


@torch.library.custom_op("memattn::abc_step", mutates_args=())
def abc_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    control: Tensor,
    padding: Tensor | None,
    keys: Tensor,
    values: Tensor,
    log_mass: Tensor,
    scale: float,
    normalised: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The output (B, H, 1, D) of one position, and the memory after it."""
    keys, values, log_mass = (x.contiguous() for x in (keys, values, log_mass))
    start = (keys, values, log_mass)
    end = (torch.empty_like(keys), torch.empty_like(values), torch.empty_like(log_mass))
    out = _run_step(q, k, v, control, padding, start, end, scale, normalised)
    return out, *end


@abc_step.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, control: Tensor, padding: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    batch, heads, _, width = q.shape
    return q.new_empty((batch, heads, 1, width)), *(x.new_empty(x.shape) for x in rest[:3])


@torch.library.custom_op("memattn::abc_step_", mutates_args=("keys", "values", "log_mass"))
def abc_step_(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    control: Tensor,
    padding: Tensor | None,
    keys: Tensor,
    values: Tensor,
    log_mass: Tensor,
    scale: float,
    normalised: bool,
) -> Tensor:
    """`abc_step` that writes the memory after the position over the given one."""
    # The heads of a shared control read its normaliser at different times.
    mass = log_mass if control.shape[1] == q.shape[1] else torch.empty_like(log_mass)
    start, end = (keys, values, log_mass), (keys, values, mass)
    out = _run_step(q, k, v, control, padding, start, end, scale, normalised)
    if mass is not log_mass:
        log_mass.copy_(mass)
    return out


@abc_step_.register_fake
def _(q: Tensor, *rest: Any) -> Tensor:
    batch, heads, _, width = q.shape
    return q.new_empty((batch, heads, 1, width))


def _run_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    control: Tensor,
    padding: Tensor | None,
    start: tuple[Tensor, ...],
    end: tuple[Tensor, ...],
    scale: float,
    normalised: bool,
) -> Tensor:
    batch, heads, _, width = q.shape
    slots = control.shape[3]
    out = q.new_empty((batch, heads, 1, width))
    mask = q if padding is None else padding.contiguous().view(torch.uint8)
    q, k, v, control = (rows_contiguous(x) for x in (q, k, v, control))
    strides = (stride for x in (q, k, v, control) for stride in x.stride()[:2])
    with torch.cuda.device_of(q):
        decoding.step[(batch * heads,)](
            *(q, k, v, control, mask, *start, *end, out, *strides),
            *(heads, control.shape[1], scale),
            D=width,
            M=slots,
            NORMALISED=normalised,
            PADDED=padding is not None,
            **step_blocks(width, slots),
        )
    return out
