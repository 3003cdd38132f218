"""How the write logits of ABC are drawn, its forms, and the slow oracle's answers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import cases
import torch
from cases import Inputs, draw, in_pieces, padding, run, shapes_of_tokens
from torch import Tensor

from fairseq_memattn.attention import abc_attention, abc_step
from fairseq_memattn.attention.ops.abc import chunked as causal
from fairseq_memattn.attention.ops.abc import naive as reference


@dataclass(frozen=True, kw_only=True)
class Case(cases.Case):
    """control: of `CONTROLS`; shared: one control for all heads."""

    control: str = "plain"
    shared: bool = False


def inputs(case: Case) -> Inputs:
    """q, k, v and log_alpha."""
    of_control = (case.batch, 1 if case.shared else case.heads, case.keys, case.slots)
    drawn = draw(case.length, log_alpha=of_control, **shapes_of_tokens(case))
    log_alpha = CONTROLS[case.control](drawn.log_alpha)
    return Inputs(q=drawn.q, k=drawn.k, v=drawn.v, log_alpha=log_alpha)


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
    sign = torch.randn(log_alpha.shape, generator=torch.Generator().manual_seed(log_alpha.numel()))
    return log_alpha + 500 * ((sign > 1.6).float() - (sign < -1.6).float())


CONTROLS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda s: s,
    "relu": _relu,
    "spikes": _spikes,
    "first +500": lambda s: _with(s, slice(0, 1), 500.0),
    "dip -500": lambda s: _with(s, slice(3, 6), -500.0),
    "late +200": lambda s: _with(s, slice(-9, -8), 200.0),
    "rise +12": lambda s: _with(s, slice(s.shape[2] // 2, None), 12.0),
    "rise +50": lambda s: _with(s, slice(s.shape[2] // 2, None), 50.0),
    "+3 each": lambda s: s + 3.0 * torch.arange(s.shape[2]).clamp(max=36).unsqueeze(1),
}

# Write logits that rise within 16 tokens by more than the factored form can hold.
STEEP = {"spikes", "late +200"}


@cache
def oracle(case: Case, is_causal: bool) -> dict[str, Tensor]:
    """Output and gradients of q, k, v, log_alpha from the definition, in float64 on the CPU."""
    mask = padding(case)

    def attend(*args: Tensor) -> Tensor:
        return reference.abc_attention(*args, causal=is_causal, key_padding_mask=mask)

    return run(attend, inputs(case).leaves(torch.float64, "cpu"))


def fast(
    case: Case,
    is_causal: bool,
    dtype: torch.dtype,
    device: torch.device,
    chunk_size: int | None = None,
) -> dict[str, Tensor]:
    """What `oracle` computes, by the function under test."""
    mask = padding(case, device)

    def attend(*args: Tensor) -> Tensor:
        return abc_attention(*args, causal=is_causal, key_padding_mask=mask, chunk_size=chunk_size)

    return run(attend, inputs(case).leaves(dtype, device))


def _step_by_step(*args: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
    ones = [1] * args[0].shape[2]
    return in_pieces(abc_step, args, ones, key_padding_mask=key_padding_mask)[0]


def _full(*args: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
    return abc_attention(*args, causal=False, key_padding_mask=key_padding_mask)


def _causal(*args: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
    return abc_attention(*args, causal=True, key_padding_mask=key_padding_mask, chunk_size=4)


# The ways to compute one attention, all from q, k, v, log_alpha and key_padding_mask.
CAUSAL_FORMS = {"causal": _causal, "step by step": _step_by_step}
FORMS = {"full": _full, **CAUSAL_FORMS}


class CountingStable:
    """Stands in for `causal._stable_attention`, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.original = causal._stable_attention

    def __call__(self, *args: Any) -> object:
        self.calls += 1
        return self.original(*args)
