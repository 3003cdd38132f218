"""Inputs, padding and comparisons that the tests of GMAT's attention share."""

from typing import NamedTuple

import torch
from torch.testing import assert_close

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5}
PADDING = ["none", "right", "holes", "sentence"]


class Case(NamedTuple):
    length: int = 13
    slots: int = 3
    pad: str = "none"
    batch: int = 2
    heads: int = 2
    width: int = 4


class Inputs(NamedTuple):
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    q_mem: torch.Tensor
    k_mem: torch.Tensor
    v_mem: torch.Tensor

    def map(self, function):
        return Inputs(*map(function, self))

    def leaves(self, dtype, device):
        return self.map(lambda x: x.to(device, dtype, copy=True).requires_grad_())

    @property
    def shared(self):
        """With shared queries and keys: all but k."""
        return [self.q, *self[2:]]


def inputs(case):
    generator = torch.Generator().manual_seed(case.length)
    lengths = [case.length] * 3 + [case.slots] * 3
    shapes = [(case.batch, case.heads, length, case.width) for length in lengths]
    return Inputs(*(torch.randn(shape, generator=generator) for shape in shapes))


def double(case, device):
    return inputs(case).map(lambda x: x.to(device, torch.float64))


def padding(case, device="cpu"):
    """ "right" pads more than a chunk of most sizes, "sentence" a whole sentence."""
    if case.pad == "none":
        return None
    mask = torch.zeros(case.batch, case.length, dtype=torch.bool, device=device)
    if case.pad == "right":
        mask[0, case.length // 3 + 1 :] = True
        mask[1, -1:] = case.length > 1
    elif case.pad == "holes":
        mask[0, 2::3] = mask[1, ::4] = True
    else:
        mask[0] = True
    return mask


def run(function, leaves):
    """Both outputs of function(*leaves), and the gradients of a fixed sum over them."""
    outs = function(*leaves)
    generator = torch.Generator().manual_seed(outs[0].numel())
    total = torch.zeros((), dtype=outs[0].dtype, device=outs[0].device)
    for out in outs:
        weights = torch.randint(-16, 17, out.shape, generator=generator).to(out) / 8
        total = total + (out * weights).sum()
    gradients = torch.autograd.grad(total, leaves, materialize_grads=True, allow_unused=True)
    return [*(out.detach() for out in outs), *gradients]


def assert_all_close(actual, expected, dtype):
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        atol = TOLERANCE[dtype] * max([1.0, *e.abs().flatten().tolist()])
        message = f"{'output' if number < 2 else 'gradient'} {number}: {{}}".format
        assert_close(a.double().cpu(), e.double(), rtol=0, atol=atol, msg=message)


def lengthened(x, dim, by, value):
    return torch.cat([x, x.new_full((*x.shape[:dim], by, *x.shape[dim + 1 :]), value)], dim)
