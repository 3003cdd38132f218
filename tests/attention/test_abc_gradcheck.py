"""Numerical derivatives in float64: every input of every form, the state included."""

import pytest
import torch
from abc_cases import Case, inputs
from cases import in_pieces
from pairwise import pairwise
from torch.autograd import gradcheck

from fairseq_memattn.attention import MemoryState, abc_step, use_backend
from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.attention.ops.abc import chunked as causal

BOTH = ["factored", "stable"]
CONTROLS = ["plain", "relu", "rise +12"]


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    """Few tokens, of which numerical derivatives take long, fill several chunks."""
    monkeypatch.setattr(causal, "STABLE_CHUNK_SIZE", 4)


def small(length, control="plain", shared=False):
    return Case(length, "left", control=control, shared=shared, batch=1, width=2)


def leaves(case, device):
    args = inputs(case).leaves(torch.float64, device)
    if case.control != "relu":
        return args, None
    # -inf cannot be nudged: those entries are written by a mask, and carry no gradient.
    empty = args.log_alpha.detach() == -torch.inf
    return args.replace(log_alpha=args.log_alpha.detach().clamp(min=0).requires_grad_()), empty


def check(function, case, device, *more):
    args, empty = leaves(case, device)

    def masked(q, k, v, log_alpha, *rest):
        if empty is not None:
            log_alpha = log_alpha.masked_fill(empty, -torch.inf)
        return function(q, k, v, log_alpha, *rest)

    assert gradcheck(masked, (*args, *more))


def memory(case, device):
    """A memory in the middle of a sequence, requiring a gradient."""
    _, state = abc_step(*inputs(case.replace(length=3)).to(device, torch.float64), None)
    return MemoryState(*(tensor.requires_grad_() for tensor in state))


@pairwise(
    indirect=["causal_form"],
    length=[1, 2, 5],
    control=["plain", "relu"],
    shared=[False, True],
    causal_form=BOTH,
)
def test_step_through_the_state(length, control, shared, causal_form, device):
    case = small(length, control, shared)

    def step(q, k, v, log_alpha, *state):
        out, after = abc_step(q, k, v, log_alpha, MemoryState(*state))
        return out, *after

    check(step, case, device, *memory(case.replace(control="plain"), device))


@pairwise(indirect=["causal_form"], shared=[False, True], causal_form=BOTH)
def test_pieces_in_a_row(shared, causal_form, device):
    """Truncated back-propagation is the caller's choice: the state carries gradients."""
    check(lambda *x: in_pieces(abc_step, x, [2, 1, 1])[0], small(4, "plain", shared), device)


@pytest.mark.parametrize("activation", ["exp", "relu"])
def test_second_derivatives_step_by_step(activation, device):
    """Slots stay empty where relu is 0, and where the first token is padding."""
    torch.manual_seed(1)
    layer = ABCAttention(8, 2, slots=3, causal=True, activation=activation).to(device).double()
    x = torch.randn(2, 4, 8, dtype=torch.float64, device=device, requires_grad=True)
    mask = torch.zeros(2, 4, dtype=torch.bool, device=device)
    mask[1, 0] = True

    def stepped():
        state, outputs = None, []
        for t in range(x.shape[1]):
            now = slice(t, t + 1)
            out, state = layer.step(x[:, now], state, key_padding_mask=mask[:, now])
            outputs.append(out)
        return torch.cat(outputs, dim=1)

    def second(out):
        (first,) = torch.autograd.grad(out[~mask].square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    with use_backend("naive"):
        whole = second(layer(x, key_padding_mask=mask))
    torch.testing.assert_close(second(stepped()), whole)
