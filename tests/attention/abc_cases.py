"""Inputs that the attention tests share, and the slow oracle's answers to them."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_memattn.attention import MemoryState, abc_attention, abc_step
from fairseq_memattn.attention.ops.abc import chunked as causal
from fairseq_memattn.attention.ops.abc import naive as reference


class Case(NamedTuple):
    """One set of inputs, in float32 on the CPU and the same wherever it is asked for.

    control names a function below; pad a key of `PADDING`; source is `length` unless told.
    """

    length: int
    control: str = "plain"
    pad: str = "none"
    shared: bool = False
    source: int | None = None
    batch: int = 2
    heads: int = 2
    width: int = 4
    slots: int = 3


class Inputs(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    log_alpha: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> "Inputs":
        return Inputs(*(function(tensor) for tensor in self))

    def leaves(self, dtype: torch.dtype, device: torch.device) -> "Inputs":
        """Copies that require a gradient."""
        return self.map(lambda x: x.to(device, dtype, copy=True).requires_grad_())

    def span(self, start: int, end: int) -> "Inputs":
        return self.map(lambda x: x[:, :, start:end])


def inputs(case: Case) -> Inputs:
    torch.manual_seed(case.length)
    source = case.length if case.source is None else case.source
    log_alpha = torch.randn(case.batch, 1 if case.shared else case.heads, source, case.slots)
    return Inputs(
        torch.randn(case.batch, case.heads, case.length, case.width),
        torch.randn(case.batch, case.heads, source, case.width),
        torch.randn(case.batch, case.heads, source, case.width),
        CONTROLS[case.control](log_alpha),
    )


def _relu(log_alpha: Tensor) -> Tensor:
    """Writes nothing at half of the entries, and nothing ever into the last slot."""
    log_alpha = log_alpha.masked_fill(log_alpha < 0, -torch.inf)
    log_alpha[..., -1] = -torch.inf
    return log_alpha


def _with(log_alpha: Tensor, at: slice, logit: float) -> Tensor:
    log_alpha[:, :, at] += logit
    return log_alpha


def _spikes(log_alpha: Tensor) -> Tensor:
    """+-500 at a tenth of the entries."""
    sign = torch.randn_like(log_alpha)
    return log_alpha + 500 * ((sign > 1.6).float() - (sign < -1.6).float())


CONTROLS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda s: s,
    "relu": _relu,
    "spikes": _spikes,
    "first +500": lambda s: _with(s, slice(0, 1), 500.0),
    "dip -500": lambda s: _with(s, slice(3, 6), -500.0),
    "late +200": lambda s: _with(s, slice(-9, -8), 200.0),
    "rise +12": lambda s: _with(s, slice(18, None), 12.0),
    "rise +50": lambda s: _with(s, slice(18, None), 50.0),
}

# Write logits that rise within a chunk by more than the factored form can hold.
STEEP = {"spikes", "late +200"}

# How many tokens of padding on the left and on the right of the first sentence; the second
# has one more token on each side that has any.
PADDING = {"none": (0, 0), "left": (3, 0), "right": (0, 5), "both": (2, 4)}


def padding(case: Case) -> Tensor | None:
    """key_padding_mask of a case: True at padding. "sentence" pads a whole sentence."""
    source = case.length if case.source is None else case.source
    if case.pad == "none":
        return None
    mask = torch.zeros(case.batch, source, dtype=torch.bool)
    if case.pad == "sentence":
        mask[0] = True
        return mask
    left, right = PADDING[case.pad]
    for b in range(case.batch):
        mask[b, : left + b * (left > 0)] = True
        mask[b, source - right - b * (right > 0) :] = True
    return mask


def run(function: Callable[..., Tensor], leaves: Inputs) -> list[Tensor]:
    """The output of function(*leaves), and the gradients of a fixed sum over it."""
    out = function(*leaves)
    generator = torch.Generator().manual_seed(out.numel())
    # Eighths, which every dtype holds exactly.
    weights = (torch.randint(-16, 17, out.shape, generator=generator) / 8).to(out)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), leaves)]


@cache
def oracle(case: Case, is_causal: bool) -> list[Tensor]:
    """Output and gradients of q, k, v, log_alpha from the definition, in float64 on the CPU."""
    leaves = inputs(case).leaves(torch.float64, torch.device("cpu"))
    mask = padding(case)

    def attend(*args: Tensor) -> Tensor:
        return reference.abc_attention(*args, causal=is_causal, key_padding_mask=mask)

    return run(attend, leaves)


def fast(
    case: Case,
    is_causal: bool,
    dtype: torch.dtype,
    device: torch.device,
    chunk_size: int | None = None,
) -> list[Tensor]:
    """What `oracle` computes, by the function under test."""
    mask = padding(case)

    def attend(*args: Tensor) -> Tensor:
        return abc_attention(
            *args,
            causal=is_causal,
            key_padding_mask=None if mask is None else mask.to(device),
            chunk_size=chunk_size,
        )

    return run(attend, inputs(case).leaves(dtype, device))


def in_pieces(
    args: Inputs,
    sizes: Iterable[int],
    state: MemoryState | None = None,
    key_padding_mask: Tensor | None = None,
) -> tuple[Tensor, MemoryState | None]:
    """Causal attention continued from piece to piece, `sizes` tokens at a time."""
    outputs, start = [], 0
    for size in sizes:
        mask = None if key_padding_mask is None else key_padding_mask[:, start : start + size]
        out, state = abc_step(*args.span(start, start + size), state, key_padding_mask=mask)
        outputs.append(out)
        start += size
    return torch.cat(outputs, dim=2), state


def _step_by_step(*args: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
    ones = [1] * args[0].shape[2]
    return in_pieces(Inputs(*args), ones, key_padding_mask=key_padding_mask)[0]


def _full(*args: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
    return abc_attention(*args, causal=False, key_padding_mask=key_padding_mask)


def _causal(*args: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
    return abc_attention(*args, causal=True, key_padding_mask=key_padding_mask, chunk_size=4)


# The ways to compute one attention, all from q, k, v, log_alpha and key_padding_mask.
CAUSAL_FORMS = {"causal": _causal, "step by step": _step_by_step}
FORMS = {"full": _full, **CAUSAL_FORMS}


def assert_all_close(actual: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    """tolerance: relative to each expected tensor's largest entry (at least 1)."""
    names = ("out", "grad q", "grad k", "grad v", "grad log_alpha")
    for name, a, e in zip(names, actual, expected, strict=True):
        atol = tolerance * max(1.0, e.abs().max().item())
        torch.testing.assert_close(
            a.double().cpu(), e, rtol=0, atol=atol, msg=lambda m, name=name: f"{name}: {m}"
        )


class CountingStable:
    """Stands in for `causal._stable_attention`, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.original = causal._stable_attention

    def __call__(self, *args: Tensor) -> object:
        self.calls += 1
        return self.original(*args)
