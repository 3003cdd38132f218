"""Checks of arguments and of tensors that do not fit together. The errors name the argument."""

from collections.abc import Sequence
from numbers import Integral, Real
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.common import MemoryState, accumulation_dtype

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def shapes(
    q: Tensor | None,
    k: Tensor,
    v: Tensor,
    control: Tensor,
    key_padding_mask: Tensor | None,
    name_of_control: str = "log_alpha",
) -> None:
    """q: (B, H, T, D); k, v: (B, G, S, D); control: (B, G or 1, S, M); key_padding_mask: (B, S).

    q: None where nothing is read yet. q, k and v have one dtype; that of the control may also be
        float32
    """
    tokens = {"k": k, "v": v} if q is None else {"q": q, "k": k, "v": v}
    tensors(**tokens, **{name_of_control: control})
    same_dtype(**tokens)
    if control.dtype not in (k.dtype, torch.float32):
        raise ValueError(
            f"`{name_of_control}` must be of torch.float32 or of `k`'s {k.dtype}, "
            f"but is of {control.dtype} instead."
        )
    q = k if q is None else q
    for name, x in tokens.items():
        axes(name, x, "B", "H", "length", "D")
    batch, _, _, width = q.shape
    heads, source = k.shape[1:3]
    shape("k", k, (batch, heads, source, width))
    shape("v", v, k.shape)
    query_heads("k", heads, q)
    if control.dim() != 4 or control.shape[:3] not in ((batch, heads, source), (batch, 1, source)):
        raise ValueError(
            f"`{name_of_control}` must be ({batch}, {heads} or 1, {source}, slots), "
            f"but is {tuple(control.shape)} instead."
        )
    if control.shape[3] < 1:
        raise ValueError(f"`{name_of_control}` must have at least one slot, but has 0 instead.")
    mask("key_padding_mask", key_padding_mask, (batch, source))
    devices("k", k.device, key_padding_mask=key_padding_mask)


def query_heads(name: str, heads: int, q: Tensor) -> None:
    """Raises ValueError for heads of keys that do not divide those of the queries."""
    if q.shape[1] % heads:
        raise ValueError(
            f"`{name}` must have a number of heads that divides the {q.shape[1]} of `q`, "
            f"but has {heads} instead."
        )


def axes(name: str, x: Tensor, *axes: str) -> None:
    """Raises ValueError for another number of axes, and for an empty one."""
    if x.dim() != len(axes) or x.numel() == 0:
        raise ValueError(
            f"`{name}` must be ({', '.join(axes)}), none of them empty, "
            f"but is {tuple(x.shape)} instead."
        )


def shape(name: str, x: Tensor, shape: Sequence[int | str]) -> None:
    """Raises ValueError for another shape. shape: sizes, and the letters of axes of any size"""
    if x.dim() == len(shape) and all(
        isinstance(size, str) or own == size for own, size in zip(x.shape, shape, strict=True)
    ):
        return
    raise ValueError(
        f"`{name}` must be ({', '.join(map(str, shape))}), but is {tuple(x.shape)} instead."
    )


def tensors(**tensors: Tensor) -> None:
    """Raises TypeError for what is no tensor, ValueError for other dtypes than those of `DTYPES`.

    Raises ValueError for another device than that of the first.
    """
    for name, x in tensors.items():
        instance(name, x, Tensor)
        if x.dtype not in DTYPES:
            raise ValueError(
                f"`{name}` must be of torch.float16, bfloat16, float32 or float64, "
                f"but is of {x.dtype} instead."
            )
    first, *_ = tensors
    devices(first, tensors[first].device, **tensors)


def devices(first: str, device: torch.device, **tensors: Tensor | None) -> None:
    """Raises ValueError for a tensor on another device than that of the argument `first`."""
    for name, x in tensors.items():
        if x is not None and x.device != device:
            raise ValueError(
                f"`{name}` must be on the device of `{first}`, {device}, "
                f"but is on {x.device} instead."
            )


def same_dtype(**tensors: Tensor) -> None:
    """Raises ValueError for a tensor of another dtype than the first."""
    first, *_ = tensors
    wanted = tensors[first].dtype
    for name, x in tensors.items():
        if x.dtype != wanted:
            raise ValueError(
                f"`{name}` must have the dtype of `{first}`, {wanted}, but is of {x.dtype} instead."
            )


def options(causal: bool, chunk_size: int | None) -> None:
    """Raises TypeError for an option of another type, and ValueError for a chunk size below 1."""
    instance("causal", causal, bool)
    instance("chunk_size", chunk_size, int, NoneType)
    if chunk_size is not None:
        least(1, chunk_size=chunk_size)


def causal(q: Tensor, k: Tensor) -> None:
    """As many queries as keys."""
    if q.shape[2] != k.shape[2]:
        raise ValueError(
            "causal attention needs as many queries as keys, "
            f"but got {q.shape[2]} queries and {k.shape[2]} keys instead."
        )


def context(causal: bool, context_group: object) -> None:
    if context_group is not None and not causal:
        raise ValueError("`context_group` needs causal=True.")


def packed(q: Tensor, cu_seqlens: Tensor, causal: bool, key_padding_mask: Tensor | None) -> None:
    """N sequences in one row. Their ends are not read, so that a GPU is not waited for."""
    if not causal or key_padding_mask is not None:
        raise ValueError("`cu_seqlens` needs causal=True and no `key_padding_mask`.")
    instance("cu_seqlens", cu_seqlens, Tensor)
    if q.shape[0] != 1:
        raise ValueError(
            f"`cu_seqlens` needs a batch of one row, but there are {q.shape[0]} instead."
        )
    is_integer = cu_seqlens.dtype in (torch.int32, torch.int64)
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 2 or not is_integer:
        raise ValueError(
            "`cu_seqlens` must be at least two numbers in one axis, of torch.int32 or torch.int64, "
            f"but is {tuple(cu_seqlens.shape)} of {cu_seqlens.dtype} instead."
        )
    devices("q", q.device, cu_seqlens=cu_seqlens)


def in_place(state: MemoryState | None, needs_gradient: bool) -> None:
    """A state to overwrite, of which autograd needs nothing."""
    if state is None:
        raise ValueError("`in_place` needs a `state` to overwrite; `MemoryState.empty` makes one.")
    if needs_gradient:
        raise ValueError("`in_place` overwrites what gradients need; use torch.no_grad().")
    for name, x in zip(state._fields, state, strict=True):
        if not x.is_contiguous():
            raise ValueError(
                f"`in_place` needs contiguous tensors, but `state.{name}` has the strides "
                f"{x.stride()} for {tuple(x.shape)} instead."
            )
    if state.keys is state.values:
        raise ValueError(
            "`in_place` needs keys and values of their own in `state`, but they are one tensor; "
            "clone one of them."
        )


def instance(name: str, value: object, *types: type) -> None:
    """Raises TypeError for a value of none of these types."""
    if not isinstance(value, types):
        names = [kind.__name__ for kind in types]
        wanted = " or ".join(
            "None" if name == "NoneType" else f"a{'n' * (name[0] in 'aeiou')} {name}"
            for name in names
        )
        raise TypeError(
            f"`{name}` must be {wanted}, but is of the type {type(value).__name__} instead."
        )


def memory_state(given: MemoryState, k: Tensor, control: Tensor) -> None:
    """A memory of as many slots as the control has, and of k's sizes."""
    memory = (*k.shape[:2], control.shape[3], k.shape[3])
    mass = (*control.shape[:2], control.shape[3])
    state(given, MemoryState, k, accumulation_dtype(k), memory, memory, mass)


def state(
    state: Any, kind: type, like: Tensor, dtype: torch.dtype, *shapes: tuple[int, ...]
) -> None:
    """Raises TypeError for a state of another kind.

    Raises ValueError for one of other shapes, of floating-point numbers of another dtype, or on
    another device than `like`.
    """
    instance("state", state, kind)
    given, wanted = [tuple(tensor.shape) for tensor in state], [*shapes]
    if given != wanted:
        raise ValueError(
            f"`state` must have the shapes {wanted} for these inputs, but has {given} instead."
        )
    for name, x in zip(state._fields, state, strict=True):
        # The others count tokens.
        if x.dtype != dtype and x.is_floating_point():
            raise ValueError(
                f"`state.{name}` must be of {dtype} for these inputs, but is of {x.dtype} instead."
            )
        if x.device != like.device:
            raise ValueError(
                f"`state.{name}` must be on the device of the inputs, {like.device}, "
                f"but is on {x.device} instead."
            )


def mask(name: str, mask: Tensor | None, shape: tuple[int, ...]) -> None:
    """Raises TypeError for what is no tensor, and ValueError for another shape or dtype."""
    instance(name, mask, Tensor, NoneType)
    if mask is None or (mask.shape == shape and mask.dtype == torch.bool):
        return
    raise ValueError(
        f"`{name}` must be {shape} of torch.bool, "
        f"but is {tuple(mask.shape)} of {mask.dtype} instead."
    )


def integer(name: str, value: object) -> None:
    """Raises ValueError for what is no int."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ValueError(f"`{name}` must be an int, but is {value!r} instead.")


def sizes(**sizes: object) -> None:
    """Raises ValueError for what is no int, or below 1."""
    for name, value in sizes.items():
        integer(name, value)
    least(1, **sizes)


def least(least: int, **values: Any) -> None:
    """Raises ValueError for a value below the least."""
    for name, value in values.items():
        if value < least:
            raise ValueError(f"`{name}` must be at least {least}, but is {value} instead.")


def heads(
    embed_dim: int, num_heads: int, whole: str = "embed_dim", part: str = "num_heads"
) -> None:
    """Raises ValueError for a number of heads that does not divide `embed_dim`."""
    integer(whole, embed_dim)
    integer(part, num_heads)
    if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
        raise ValueError(f"`{part}` must divide `{whole}` {embed_dim}, but is {num_heads} instead.")


def dropout(dropout: float) -> None:
    """Raises ValueError for a probability that is not in [0, 1)."""
    if not isinstance(dropout, Real | Tensor) or not 0 <= dropout < 1:
        raise ValueError(f"`dropout` must be from 0 to below 1, but is {dropout!r} instead.")


def batch(name: str, x: Tensor, embed_dim: int, key_padding_mask: Tensor | None = None) -> None:
    """Raises ValueError unless x is (B, S, embed_dim) and the mask (B, S) of torch.bool.

    Raises TypeError for what is no tensor. torch refuses other dtypes and devices than those of a
    layer's weights.
    """
    instance(name, x, Tensor)
    axes(name, x, "B", "length", str(embed_dim))
    shape(name, x, ("B", "length", embed_dim))
    mask("key_padding_mask", key_padding_mask, (x.shape[0], x.shape[1]))
