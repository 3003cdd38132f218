"""Numerical derivatives in float64: every input of every form, the state included."""

import pytest
import torch
from abc_cases import Case, inputs, padding
from pairwise import pairwise
from torch.autograd import gradcheck

from fairseq_memattn.attention import MemoryState, abc_attention, abc_step

heads_share = pytest.mark.parametrize("shared", [False, True], ids=["per_head", "shared"])
any_control = pytest.mark.parametrize("control", ["plain", "relu", "rise +12"])


def small(length, control="plain", shared=False):
    return Case(length, control, "left", shared, batch=1, width=2)


def leaves(case, device):
    args = inputs(case).leaves(torch.float64, device)
    if case.control != "relu":
        return args, None
    # -inf cannot be nudged: those entries are written by a mask, and carry no gradient.
    empty = args.log_alpha.detach() == -torch.inf
    return args._replace(log_alpha=args.log_alpha.detach().clamp(min=0).requires_grad_()), empty


def check(function, case, device, *more):
    args, empty = leaves(case, device)

    def masked(q, k, v, log_alpha, *rest):
        if empty is not None:
            log_alpha = log_alpha.masked_fill(empty, -torch.inf)
        return function(q, k, v, log_alpha, *rest)

    assert gradcheck(masked, (*args, *more))


@heads_share
@any_control
def test_full(control, shared, device):
    case = small(6, control, shared)
    mask = padding(case).to(device)
    check(lambda *x: abc_attention(*x, causal=False, key_padding_mask=mask), case, device)


@pairwise(
    indirect=["both_forms"],
    chunk_size=[1, 3, 4, None],
    control=["plain", "relu"],
    shared=[False, True],
    both_forms=["factored", "stable"],
)
def test_causal(chunk_size, control, shared, both_forms, device):
    case = small(7, control, shared)
    mask = padding(case).to(device)

    def attend(*args):
        return abc_attention(*args, causal=True, key_padding_mask=mask, chunk_size=chunk_size)

    check(attend, case, device)


@heads_share
def test_causal_past_a_rise(shared, both_forms, device):
    case = small(22, "rise +12", shared)
    check(lambda *x: abc_attention(*x, causal=True), case, device)


def memory(case, device):
    """A memory in the middle of a sequence, requiring a gradient."""
    _, state = abc_step(*inputs(case._replace(length=3)).leaves(torch.float64, device), None)
    return MemoryState(*(tensor.detach().requires_grad_() for tensor in state))


@pairwise(
    indirect=["both_forms"],
    length=[1, 2, 5, 17],
    control=["plain", "relu"],
    shared=[False, True],
    both_forms=["factored", "stable"],
)
def test_step_through_the_state(length, control, shared, both_forms, device):
    case = small(length, control, shared)

    def step(q, k, v, log_alpha, *state):
        out, after = abc_step(q, k, v, log_alpha, MemoryState(*state))
        return out, *after

    check(step, case, device, *memory(case._replace(control="plain"), device))


@heads_share
def test_two_pieces_in_a_row(shared, both_forms, device):
    """Truncated back-propagation is the caller's choice: the state carries gradients."""
    case = small(6, "plain", shared)

    def steps(*args):
        _, state = abc_step(*(x[:, :, :3] for x in args), None)
        first, state = abc_step(*(x[:, :, 3:4] for x in args), state)
        second, _ = abc_step(*(x[:, :, 4:] for x in args), state)
        return torch.cat([first, second], dim=2)

    check(steps, case, device)
