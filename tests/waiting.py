"""Finds where a function would wait for a GPU, without one.

The function runs on tensors of the device "meta", which have shapes and no numbers. PyTorch raises
an error where a number is read, or a shape depends on numbers. `on_no_gpu` raises one where
something is copied from the CPU, unless the copy does not block. Code that asks whether a tensor is
on the CPU does here what it does on a GPU; code that asks for "cuda" does not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fairseq_memattn.attention import use_backend

META = torch.device("meta")
# A boolean index has to be counted. `index_put` takes one on "meta".
BY_INDEX = {torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_}
# Python numbers are copied to a GPU, which is waited for.
MAKERS = {torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy, Tensor.new_tensor}


class Waits(Exception):
    """An operation would wait for a GPU."""


class Sizes(TorchDispatchMode):
    """Records the size of the largest tensor that an operation makes, and raises `Waits`."""

    largest = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        out = function(*args, **kwargs)
        given, made = tensors((args, kwargs)), tensors(out)
        self.largest = max([self.largest, *(x.numel() for x in made if x.is_meta)])
        from_cpu = any(x.device.type == "cpu" and x.dim() for x in given)
        to_gpu = any(x.is_meta for x in (*given, *made))
        if from_cpu and to_gpu and not kwargs.get("non_blocking"):
            raise Waits(f"{function} copies from the CPU")
        if function.overloadpacket in BY_INDEX and any(
            x.dtype == torch.bool for x in tensors(args[1])
        ):
            raise Waits(f"{function} counts a mask")
        return out


class Makers(TorchFunctionMode):
    """Raises `Waits` where a tensor is made from Python numbers."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        if function in MAKERS and out.is_meta:
            raise Waits(f"{function} copies from the CPU")
        return out


def tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


@contextmanager
def on_no_gpu() -> Iterator[Sizes]:
    """Raises an error where a GPU would be waited for, and records the largest tensor."""
    with Makers(), Sizes() as sizes:
        yield sizes


@contextmanager
def kernels() -> Iterator[None]:
    """Chooses the kernels of a GPU, without which the causal form of ABC reads numbers.

    On "meta" their operators return shapes. Skips a test where the package triton is missing.
    """
    pytest.importorskip("triton")
    from fairseq_memattn.attention.ops.abc.triton import launch

    with use_backend("triton"), mock.patch.object(launch, "INTERPRETED", True):
        yield
