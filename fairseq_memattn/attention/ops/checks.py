"""Checks of tensors that do not fit together. The errors name the argument."""

from types import NoneType
from typing import Any

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.state import MemoryState


def check_shapes(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    control: Tensor,
    key_padding_mask: Tensor | None,
    name_of_control: str = "log_alpha",
) -> None:
    """q, k, v: (B, H, T or S, D); control: (B, H or 1, S, M); key_padding_mask: (B, S)."""
    for name, tensor in (("q", q), ("k", k)):
        if tensor.dim() != 4 or tensor.numel() == 0:
            raise ValueError(
                f"`{name}` must have the four axes (B, H, length, D), none of them empty, "
                f"but is {tuple(tensor.shape)} instead."
            )
    batch, heads, _, width = q.shape
    source = k.shape[2]
    if k.shape != (batch, heads, source, width):
        raise ValueError(f"`k` must match `q` {tuple(q.shape)}, but is {tuple(k.shape)} instead.")
    if v.shape != k.shape:
        raise ValueError(f"`v` must match `k` {tuple(k.shape)}, but is {tuple(v.shape)} instead.")
    if control.dim() != 4 or control.shape[:3] not in ((batch, heads, source), (batch, 1, source)):
        raise ValueError(
            f"`{name_of_control}` must be ({batch}, {heads} or 1, {source}, slots), "
            f"but is {tuple(control.shape)} instead."
        )
    if control.shape[3] < 1:
        raise ValueError(f"`{name_of_control}` must have at least one slot, but has 0 instead.")
    check_mask("key_padding_mask", key_padding_mask, (batch, source))


def check_causal(q: Tensor, k: Tensor) -> None:
    """As many queries as keys."""
    if q.shape[2] != k.shape[2]:
        raise ValueError(
            "causal attention needs as many queries as keys, "
            f"but got {q.shape[2]} queries and {k.shape[2]} keys instead."
        )


def check_packed(
    q: Tensor, cu_seqlens: Tensor, causal: bool, key_padding_mask: Tensor | None
) -> None:
    """N sequences in one row. Their ends are not read, so that a GPU is not waited for."""
    if not causal or key_padding_mask is not None:
        raise ValueError("`cu_seqlens` needs causal=True and no `key_padding_mask`.")
    if q.shape[0] != 1:
        raise ValueError(
            f"`cu_seqlens` needs a batch of one row, but `q` has {q.shape[0]} instead."
        )
    is_integer = cu_seqlens.dtype in (torch.int32, torch.int64)
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 2 or not is_integer:
        raise ValueError(
            "`cu_seqlens` must be (N + 1,) of torch.int32 or torch.int64, "
            f"but is {tuple(cu_seqlens.shape)} of {cu_seqlens.dtype} instead."
        )
    if cu_seqlens.device != q.device:
        raise ValueError(
            f"`cu_seqlens` must be on the device of `q`, {q.device}, "
            f"but is on {cu_seqlens.device} instead."
        )


def check_in_place(state: MemoryState | None, needs_gradient: bool) -> None:
    """A state to overwrite, of which autograd needs nothing."""
    if state is None:
        raise ValueError("`in_place` needs a `state` to overwrite; `MemoryState.empty` makes one.")
    if needs_gradient:
        raise ValueError("`in_place` overwrites what gradients need; use torch.no_grad().")
    if not all(x.is_contiguous() for x in state):
        raise ValueError("`in_place` needs a `state` whose tensors are contiguous.")


def check_type(name: str, value: object, *types: type) -> None:
    """Raises TypeError for a value of none of these types."""
    if not isinstance(value, types):
        wanted = " or ".join("None" if kind is NoneType else f"a {kind.__name__}" for kind in types)
        raise TypeError(
            f"`{name}` must be {wanted}, but is of the type {type(value).__name__} instead."
        )


def check_memory_state(state: MemoryState, k: Tensor, control: Tensor) -> None:
    """A memory of as many slots as the control has, and of k's sizes."""
    memory = (*k.shape[:2], control.shape[3], k.shape[3])
    check_state(state, MemoryState, memory, memory, (*control.shape[:2], control.shape[3]))


def check_state(state: Any, kind: type, *shapes: tuple[int, ...]) -> None:
    """Raises TypeError for a state of another kind, and ValueError for one of other shapes."""
    check_type("state", state, kind)
    given, wanted = [tuple(tensor.shape) for tensor in state], [*shapes]
    if given != wanted:
        raise ValueError(
            f"`state` must have the shapes {wanted} for these inputs, but has {given} instead."
        )


def check_mask(name: str, mask: Tensor | None, shape: tuple[int, ...]) -> None:
    """Raises TypeError for what is no tensor, and ValueError for another shape or dtype."""
    check_type(name, mask, Tensor, NoneType)
    if mask is None or (mask.shape == shape and mask.dtype == torch.bool):
        return
    raise ValueError(
        f"`{name}` must be {shape} of torch.bool, "
        f"but is {tuple(mask.shape)} of {mask.dtype} instead."
    )
