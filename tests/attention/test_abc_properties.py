"""What has to hold whatever the numbers are, without an oracle."""

import pytest
import torch
from abc_cases import (
    CAUSAL_FORMS,
    CONTROLS,
    FORMS,
    Case,
    Inputs,
    in_pieces,
    inputs,
    padding,
    run,
)
from pairwise import pairwise
from torch.testing import assert_close

from fairseq_memattn.attention import abc_attention, abc_step, abc_write

any_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
any_causal_form = pytest.mark.parametrize("form", CAUSAL_FORMS.values(), ids=CAUSAL_FORMS)
any_control = pytest.mark.parametrize("control", CONTROLS)
heads_share = pytest.mark.parametrize("shared", [False, True], ids=["per_head", "shared"])


def double(case, device):
    return inputs(case).map(lambda x: x.to(device, torch.float64))


# --- What attention computes


@any_form
@any_control
def test_constant_values_give_constant_output(form, control, device):
    case = double(Case(37, control=control, shared=True), device)
    if control == "relu":  # before the first token that writes, the output is zero
        case.log_alpha[:, :, 0, 0] = 0.0
    constant = torch.arange(4.0, device=device, dtype=torch.float64)
    out = form(*case._replace(v=constant.expand_as(case.v)))
    assert_close(out, constant.expand_as(out))


def one_slot_a_token(length, device):
    """log of phi_i = e_i."""
    empty = torch.full((1, 1, length, length), -torch.inf, dtype=torch.float64, device=device)
    return empty.masked_fill(torch.eye(length, dtype=torch.bool, device=device), 0.0)


@any_form
def test_one_slot_a_token_is_softmax_attention(form, both_forms, device):
    length = 21
    case = double(Case(length, batch=1), device)
    case = case._replace(log_alpha=one_slot_a_token(length, device))

    def softmax_attention(q, k, v, log_alpha):
        logits = q @ k.transpose(2, 3) / 2 + 0 * log_alpha.isfinite()
        if form is not FORMS["full"]:
            future = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
            logits = logits.masked_fill(future, -torch.inf)
        return logits.softmax(dim=-1) @ v + 0 * log_alpha.clamp(min=0).sum()

    leaves = case.leaves(torch.float64, device)
    for actual, expected in zip(run(form, leaves), run(softmax_attention, leaves), strict=True):
        assert_close(actual, expected)


@any_form
def test_slots_that_hold_nothing_take_no_softmax_mass(form, both_forms, device):
    case = double(Case(21, slots=5), device)
    case.log_alpha[..., 3:] = -torch.inf
    without = case._replace(log_alpha=case.log_alpha[..., :3])
    assert_close(form(*case), form(*without))


@any_causal_form
def test_a_slot_takes_no_mass_before_its_first_token(form, both_forms, device):
    case = double(Case(21), device)
    case.log_alpha[:, :, :9, 2] = -torch.inf
    out = form(*case)
    without = case._replace(log_alpha=case.log_alpha[..., :2])
    assert_close(out[:, :, :9], form(*without)[:, :, :9])
    assert not torch.allclose(out[:, :, 9], form(*without)[:, :, 9])


@any_form
def test_nothing_to_read_gives_zeros(form, both_forms, device):
    case = Case(15, pad="sentence")
    leaves = inputs(case).leaves(torch.float64, device)
    out, *grads = run(lambda *x: form(*x, key_padding_mask=padding(case).to(device)), leaves)
    assert (out[0] == 0).all() and (out[1] != 0).all()
    for grad in grads:
        assert (grad[0] == 0).all() and grad[1].isfinite().all() and grad[1].any()


@any_causal_form
def test_queries_before_the_first_write_give_zeros(form, both_forms, device):
    case = double(Case(15), device)
    case.log_alpha[:, :, :6] = -torch.inf
    out = form(*case)
    assert (out[:, :, :6] == 0).all() and (out[:, :, 6:] != 0).all()


# --- Causality


@any_causal_form
@pytest.mark.parametrize("control", ["plain", "rise +12"])
def test_each_output_depends_on_all_tokens_up_to_its_own(form, control, both_forms, device):
    length = 22
    leaves = inputs(Case(length, control=control, batch=1)).leaves(torch.float64, device)
    out = form(*leaves)
    for t in range(length):
        _, k, v, log_alpha = torch.autograd.grad(out[:, :, t].sum(), leaves, retain_graph=True)
        assert (v[:, :, : t + 1] > 0).all()
        assert (k[:, :, 1 : t + 1] != 0).all() and (log_alpha[:, :, 1 : t + 1] != 0).all()
        for grad in (k, v, log_alpha):
            assert (grad[:, :, t + 1 :] == 0).all()


# --- The state


@pairwise(
    sizes=[[1] * 30, [30], [5, 1, 1, 23], [16, 14]],
    control=CONTROLS,
    shared=[False, True],
    indirect=["both_forms"],
    both_forms=["factored", "stable"],
)
def test_pieces_give_what_the_whole_gives(sizes, control, shared, both_forms, device):
    case = Case(30, control=control, shared=shared, pad="both")
    args, mask = double(case, device), padding(case).to(device)
    whole = abc_attention(*args, causal=True, key_padding_mask=mask)
    pieces, state = in_pieces(args, sizes, key_padding_mask=mask)
    assert_close(pieces, whole)
    # After its last token, causal attention has read what full attention reads.
    for actual, expected in zip(state, abc_write(*args[1:], mask), strict=True):
        assert_close(actual, expected)


@pairwise(control=["plain", "relu", "spikes"], size=[1, 6], shared=[False, True])
def test_beams_are_reordered_and_the_given_state_is_left_alone(control, size, shared, device):
    args = double(Case(18, control=control, shared=shared, batch=3), device)
    order = torch.tensor([2, 0, 0, 1], device=device)
    _, state = in_pieces(args.span(0, 6), [6])
    before = [tensor.clone() for tensor in state]

    reordered = args.map(lambda x: x[order])
    out, _ = in_pieces(reordered.span(6, 18), [size] * (12 // size), state.reorder(order))
    in_pieces(args.span(6, 18), [size] * (12 // size), state)

    assert_close(out, abc_attention(*reordered, causal=True)[:, :, 6:])
    assert all(torch.equal(*pair) for pair in zip(state, before, strict=True))


@heads_share
@pytest.mark.parametrize("written", [0, 5])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_padding_leaves_the_state_exactly_unchanged(
    dtype, size, written, shared, both_forms, device
):
    args = inputs(Case(8, shared=shared)).map(lambda x: x.to(device, dtype))
    nothing = torch.ones(2, 5, dtype=torch.bool, device=device)
    _, state = abc_step(*args.span(0, 5), None, key_padding_mask=nothing if not written else None)
    pads = torch.ones(2, size, dtype=torch.bool, device=device)
    _, after = abc_step(*args.span(5, 5 + size), state, key_padding_mask=pads)
    assert all(torch.equal(*pair) for pair in zip(after, state, strict=True))


@pairwise(
    length=[1, 3, 150], shared=[False, True], dtype=[torch.float32, torch.bfloat16, torch.float16]
)
def test_state_is_float32_and_of_one_size(shared, length, dtype, device):
    case = Case(length, shared=shared)
    args = inputs(case).map(lambda x: x.to(device, dtype))
    out, state = abc_step(*args, None)
    memory = (case.batch, case.heads, case.slots, case.width)
    mass = (case.batch, 1 if shared else case.heads, case.slots)
    assert [tensor.shape for tensor in state] == [memory, memory, mass]
    assert {tensor.dtype for tensor in state} == {torch.float32}
    # Not a view either, which would keep all memories of the sequence alive.
    assert all(t.untyped_storage().nbytes() == 4 * t.numel() for t in state)
    assert out.dtype == dtype


# --- Padding and batches


def padded(args: Inputs, left: int, right: int) -> tuple[Inputs, torch.Tensor]:
    """The same sentences with `left` and `right` tokens of noise around them, and the mask."""

    def add(x):
        noise = x.new_empty(*x.shape[:2], left + right, x.shape[3]).uniform_(-9, 9)
        return torch.cat([noise[:, :, :left], x, noise[:, :, left:]], dim=2)

    mask = torch.ones(args.q.shape[0], left + args.q.shape[2] + right, dtype=torch.bool)
    mask[:, left : left + args.q.shape[2]] = False
    return args.map(add), mask.to(args.q.device)


@pairwise(around=[(3, 0), (0, 6), (70, 1)], control=CONTROLS, form=FORMS)
def test_padding_changes_nothing(around, control, form, device):
    (left, right), form = around, FORMS[form]
    args = double(Case(30, control=control), device)
    longer, mask = padded(args, left, right)
    out = form(*longer, key_padding_mask=mask)
    assert_close(out[:, :, left : left + 30], form(*args))


@any_form
@any_control
def test_batch_mates_change_nothing(control, form, device):
    case = Case(30, control=control, batch=3, pad="left")
    args, mask = double(case, device), padding(case).to(device)
    together = form(*args, key_padding_mask=mask)
    for b in range(3):
        alone = form(*args.map(lambda x, b=b: x[b : b + 1]), key_padding_mask=mask[b : b + 1])
        assert_close(together[b : b + 1], alone)


@pytest.mark.parametrize("steep", [False, True])
def test_a_steep_batch_mate_changes_nothing(steep, device):
    """One sentence decides for the whole batch which causal form runs."""
    args = double(Case(30), device)
    alone = abc_attention(*args.map(lambda x: x[:1]), causal=True)
    args.log_alpha[1, :, 20] += 300.0 * steep
    assert_close(abc_attention(*args, causal=True)[:1], alone)


# --- Half precision


@pairwise(
    form=FORMS,
    control=["plain", "relu", "spikes", "late +200", "rise +12", "rise +50"],
    shared=[False, True],
    dtype=[torch.bfloat16, torch.float16],
)
def test_half_precision_rounds_the_result_and_nothing_else(form, control, shared, dtype, device):
    form = FORMS[form]
    rounded = inputs(Case(37, control=control, shared=shared)).map(lambda x: x.to(dtype))
    actual = run(form, rounded.leaves(dtype, device))
    expected = run(form, rounded.leaves(torch.float32, device))
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == dtype and a.isfinite().all()
        scale = max(1.0, e.abs().max().item())
        assert_close(a.float(), e, rtol=torch.finfo(dtype).eps, atol=1e-5 * scale)


@any_form
def test_autocast_changes_nothing(form, both_forms, device):
    """Normalisers and memories stay in float32 whatever a training loop turns on around them."""
    leaves = inputs(Case(37)).leaves(torch.float32, device)

    def under_autocast(*args):
        with torch.autocast(device.type, torch.bfloat16):
            return form(*args)

    for actual, expected in zip(run(under_autocast, leaves), run(form, leaves), strict=True):
        assert_close(actual, expected)


def test_state_is_float32_under_autocast(device):
    args = inputs(Case(5)).map(lambda x: x.to(device))
    with torch.autocast(device.type, torch.bfloat16):
        memories = [abc_write(*args[1:]), *(in_pieces(args, [n])[1] for n in (1, 5))]
    assert {tensor.dtype for memory in memories for tensor in memory} == {torch.float32}
