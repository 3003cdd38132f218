"""One harness for the tests of all operations: inputs, padding, runs, pieces and comparisons.

Inputs are drawn in float32 on the CPU, from a seed of their own: those of a case are the same
wherever it is asked for. How an operation's control vectors are drawn, and how its oracle is
called, is written beside its tests.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from types import SimpleNamespace
from typing import Any, Self

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5}


@dataclass(frozen=True)
class Case:
    """The sizes of one set of inputs, and their padding. Subclasses add what an operation needs.

    length: T, and S where `source` is None; pad: of `PADS`, or of `PADS_OF_SEQUENCES` where there
    are K sequences in an input; slots: M
    """

    length: int = 13
    pad: str = "none"
    _: KW_ONLY
    source: int | None = None
    sequences: int | None = None
    batch: int = 2
    heads: int = 2
    width: int = 4
    slots: int = 3

    @property
    def keys(self) -> int:
        """S."""
        return self.length if self.source is None else self.source

    def replace(self, **fields: Any) -> Self:
        return dataclasses.replace(self, **fields)


class Inputs(SimpleNamespace):
    """The tensors that a function takes, by name and in their order."""

    def __iter__(self) -> Iterator[Tensor]:
        return iter(vars(self).values())

    def replace(self, **tensors: Tensor) -> "Inputs":
        return Inputs(**{**vars(self), **tensors})

    def without(self, name: str) -> "Inputs":
        return Inputs(**{own: tensor for own, tensor in vars(self).items() if own != name})

    def map(self, function: Callable[[Tensor], Tensor]) -> "Inputs":
        return Inputs(**{name: function(tensor) for name, tensor in vars(self).items()})

    def to(self, *args: Any) -> "Inputs":
        return self.map(lambda x: x.to(*args))

    def leaves(self, dtype: torch.dtype, device: Any) -> "Inputs":
        """Copies that require a gradient."""
        return self.map(lambda x: x.to(device, dtype, copy=True).requires_grad_())

    def span(self, start: int, end: int) -> "Inputs":
        """The tokens from start to end, which are axis 2."""
        return self.map(lambda x: x[:, :, start:end])

    def row(self, b: int) -> "Inputs":
        return self.map(lambda x: x[b : b + 1])


def draw(seed: int, **shapes: Sequence[int]) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    return Inputs(**{name: torch.randn(s, generator=generator) for name, s in shapes.items()})


def shapes_of_tokens(case: Case) -> dict[str, tuple[int, ...]]:
    """q (B, H, T, D), k and v (B, H, S, D)."""
    of_keys = (case.batch, case.heads, case.keys, case.width)
    return {"q": (case.batch, case.heads, case.length, case.width), "k": of_keys, "v": of_keys}


def tokens_and_memory(case: Case) -> Inputs:
    """q, k and v of the tokens (B, H, T, D), and of a global memory (B, H, M, D)."""
    of_memory = (case.batch, case.heads, case.slots, case.width)
    memory = dict.fromkeys(("q_mem", "k_mem", "v_mem"), of_memory)
    return draw(case.length, **shapes_of_tokens(case), **memory)


# --- Padding

PADS = ["none", "left", "right", "both", "holes", "sentence"]
PADS_OF_SEQUENCES = ["none", "right", "holes", "absent", "nothing"]
any_padding = pytest.mark.parametrize("pad", PADS)
any_padding_of_sequences = pytest.mark.parametrize("pad", PADS_OF_SEQUENCES)


def padding(case: Case, device: Any = "cpu") -> Tensor | None:
    """The key_padding_mask of a case, True at padding; None without padding."""
    if case.pad == "none":
        return None
    mask = torch.zeros(case.batch, case.keys, dtype=torch.bool)
    if case.sequences is not None:
        mask = mask.unsqueeze(1).repeat(1, case.sequences, 1)
        return _pad_sequences(mask, case.pad).to(device)
    return _pad_tokens(mask, case.pad).to(device)


def _pad_tokens(mask: Tensor, pad: str) -> Tensor:
    """left, right, both: of every sentence, of the second one token more; holes: tokens between
    others; sentence: the first one. A third sentence is nothing but padding."""
    length = mask.shape[1]
    left = {"left": length // 4, "both": length // 6}
    right = {"right": length // 2, "both": length // 4}
    mask[2:] = True
    if pad == "holes":
        mask[0, 2::3] = mask[1:2, ::4] = True
    elif pad == "sentence":
        mask[0] = True
    for b, row in enumerate(mask):
        if pad in left:
            row[: left[pad] + b] = True
        if pad in right:
            row[max(0, length - right[pad] - b) :] = True
    return mask


def _pad_sequences(mask: Tensor, pad: str) -> Tensor:
    """right, holes: of some sequences and of all; absent: whole sequences; nothing: but padding."""
    if pad == "right":
        mask[0, 0, -1:] = mask[1:, :, -2:] = mask[1:, -1, 1:] = True
    elif pad == "holes":
        mask[0, :, 1] = mask[0, 0, 1::3] = mask[1:, -1, ::2] = True
    elif pad == "absent":
        mask[0, 0] = mask[1:, 1:] = True
        mask[1:, 0, -2:] = True
    else:
        mask[0] = True
    return mask


# --- Runs


def outputs(outs: Any) -> tuple[Tensor, ...]:
    """What a function returns, as a tuple."""
    return outs if isinstance(outs, tuple) else (outs,)


def fixed_sum(outs: Any) -> Tensor:
    """A sum over the outputs, in which every number has a weight of its own."""
    parts = []
    for out in outputs(outs):
        generator = torch.Generator().manual_seed(out.numel())
        # Eighths, which every dtype holds exactly.
        weights = (torch.randint(-16, 17, out.shape, generator=generator) / 8).to(out.device)
        parts.append((out.double() * weights).sum())
    return torch.stack(parts).sum()


def run(
    function: Callable[..., Any], leaves: Inputs, allow_unused: bool = False
) -> dict[str, Tensor]:
    """The outputs of function(*leaves), and the gradients of `fixed_sum`, by name.

    allow_unused: gives zeros for what the outputs do not depend on
    """
    outs = outputs(function(*leaves))
    gradients = torch.autograd.grad(
        fixed_sum(outs), tuple(leaves), allow_unused=allow_unused, materialize_grads=allow_unused
    )
    results = {f"output {number}": out.detach() for number, out in enumerate(outs)}
    return results | dict(zip((f"grad {name}" for name in vars(leaves)), gradients, strict=True))


def assert_all_close(
    actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float
) -> None:
    """tolerance: relative to each expected tensor's largest entry (at least 1)."""
    assert actual.keys() == expected.keys()
    for name, e in expected.items():
        atol = tolerance * max([1.0, *e.abs().flatten().tolist()])
        message = f"{name}: {{}}".format
        assert_close(actual[name].double().cpu(), e.double().cpu(), rtol=0, atol=atol, msg=message)


def assert_equal(actual: Iterable[Tensor], expected: Iterable[Tensor]) -> None:
    """Bit by bit."""
    assert all(torch.equal(*pair) for pair in zip(actual, expected, strict=True))


def in_pieces(
    step: Callable[..., tuple[Tensor, Any]],
    args: Iterable[Tensor],
    sizes: Iterable[int],
    state: Any = None,
    key_padding_mask: Tensor | None = None,
) -> tuple[Tensor, Any]:
    """Causal attention continued from piece to piece, `sizes` tokens at a time.

    step: of the tensors of a piece, `state` and `key_padding_mask`, to its output and the state
    """
    args, parts, start = tuple(args), [], 0
    for size in sizes:
        end = start + size
        mask = None if key_padding_mask is None else key_padding_mask[:, start:end]
        piece = (x[:, :, start:end] for x in args)
        out, state = step(*piece, state=state, key_padding_mask=mask)
        parts.append(out)
        start = end
    return torch.cat(parts, dim=2), state


def saved_for_backward(function: Callable[..., Any], args: Iterable[Tensor]) -> list[Tensor]:
    """The distinct tensors that function(*args) keeps for its backward pass, by storage."""
    saved = {}

    def pack(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor  # kept, so that no address is reused
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outs = outputs(function(*args))
    assert all(out.requires_grad for out in outs)
    return list(saved.values())


def nbytes(tensor: Tensor) -> int:
    """What the tensor keeps alive, a larger one that it is a view of included."""
    return tensor.untyped_storage().nbytes()


def lengthened(x: Tensor, dim: int, by: int, value: float) -> Tensor:
    return torch.cat([x, x.new_full((*x.shape[:dim], by, *x.shape[dim + 1 :]), value)], dim)


def attention_to_something(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **options: Any
) -> Tensor:
    """`scaled_dot_product_attention` where every query sees something.

    What a softmax over nothing gives differs between PyTorch's kernels; none is asked for.
    """
    assert k.shape[2] > 0
    assert attn_mask is None or attn_mask.any(dim=-1).all()
    return scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, **options)
