"""What has to hold whatever the numbers are, without an oracle."""

import pytest
import torch
from abc_cases import CAUSAL_FORMS, CONTROLS, FORMS, Case, inputs
from cases import assert_equal, in_pieces, nbytes, padding, run
from pairwise import pairwise
from torch.testing import assert_close

from fairseq_memattn.attention import abc_attention, abc_step, abc_write

# The factored form and the stable one are two ways to compute what is causal.
CAUSAL = [(name, form) for name in CAUSAL_FORMS for form in ("factored", "stable")]
CAUSAL.append(("causal", "short"))
any_causal_form = pytest.mark.parametrize("name, causal_form", CAUSAL, indirect=["causal_form"])
every_form = pytest.mark.parametrize(
    "name, causal_form", [("full", "factored"), *CAUSAL], indirect=["causal_form"]
)


def double(case, device):
    return inputs(case).to(device, torch.float64)


def pieces_of(args, sizes, state=None, key_padding_mask=None):
    return in_pieces(abc_step, args, sizes, state, key_padding_mask)


# --- What attention computes


def one_slot_a_token(length, device):
    """log of phi_i = e_i."""
    empty = torch.full((1, 1, length, length), -torch.inf, dtype=torch.float64, device=device)
    return empty.masked_fill(torch.eye(length, dtype=torch.bool, device=device), 0.0)


@every_form
def test_one_slot_a_token_is_softmax_attention(name, causal_form, device):
    form, length = FORMS[name], 21
    case = double(Case(length, batch=1), device).replace(log_alpha=one_slot_a_token(length, device))

    def softmax_attention(q, k, v, log_alpha):
        logits = q @ k.transpose(2, 3) / 2 + 0 * log_alpha.isfinite()
        if name != "full":
            future = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
            logits = logits.masked_fill(future, -torch.inf)
        return logits.softmax(dim=-1) @ v + 0 * log_alpha.clamp(min=0).sum()

    leaves = case.leaves(torch.float64, device)
    assert_close(run(form, leaves), run(softmax_attention, leaves))


@any_causal_form
def test_queries_before_the_first_write_give_zeros(name, causal_form, device):
    form = FORMS[name]
    case = double(Case(15), device)
    case.log_alpha[:, :, :6] = -torch.inf
    out = form(*case)
    assert (out[:, :, :6] == 0).all() and (out[:, :, 6:] != 0).all()


# --- The state


@pairwise(
    sizes=[[1] * 30, [30], [5, 1, 1, 23], [16, 14]],
    control=CONTROLS,
    shared=[False, True],
    indirect=["causal_form"],
    causal_form=["factored", "stable"],
)
def test_pieces_give_what_the_whole_gives(sizes, control, shared, causal_form, device):
    case = Case(30, "both", control=control, shared=shared)
    args, mask = double(case, device), padding(case, device)
    whole = abc_attention(*args, causal=True, key_padding_mask=mask)
    pieces, state = pieces_of(args, sizes, key_padding_mask=mask)
    assert_close(pieces, whole)
    # After its last token, causal attention has read what full attention reads.
    written = abc_write(args.k, args.v, args.log_alpha, mask)
    assert_close(tuple(state), tuple(written))


@pairwise(
    dtype=[torch.float32, torch.bfloat16],
    size=[1, 3],
    written=[0, 5],
    shared=[False, True],
    causal_form=["factored", "stable"],
    indirect=["causal_form"],
)
def test_padding_leaves_the_state_exactly_unchanged(
    dtype, size, written, shared, causal_form, device
):
    args = inputs(Case(8, shared=shared)).to(device, dtype)
    nothing = torch.ones(2, 5, dtype=torch.bool, device=device)
    _, state = abc_step(*args.span(0, 5), None, key_padding_mask=nothing if not written else None)
    pads = torch.ones(2, size, dtype=torch.bool, device=device)
    _, after = abc_step(*args.span(5, 5 + size), state, key_padding_mask=pads)
    assert_equal(after, state)


@pairwise(
    length=[1, 3, 150], shared=[False, True], dtype=[torch.float32, torch.bfloat16, torch.float16]
)
def test_state_is_float32_and_of_one_size(shared, length, dtype, device):
    case = Case(length, shared=shared)
    args = inputs(case).to(device, dtype)
    out, state = abc_step(*args, None)
    memory = (case.batch, case.heads, case.slots, case.width)
    mass = (case.batch, 1 if shared else case.heads, case.slots)
    assert [tensor.shape for tensor in state] == [memory, memory, mass]
    assert {tensor.dtype for tensor in state} == {torch.float32}
    # Not a view either, which would keep all memories of the sequence alive.
    assert all(nbytes(tensor) == 4 * tensor.numel() for tensor in state)
    assert out.dtype == dtype


# --- Padding and batches


@pytest.mark.parametrize("steep", [False, True])
def test_a_steep_batch_mate_changes_nothing(steep, device):
    """One sentence decides for the whole batch which causal form runs."""
    args = double(Case(30), device)
    alone = abc_attention(*args.row(0), causal=True)
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
    rounded = inputs(Case(37, control=control, shared=shared)).to(dtype)
    actual = run(form, rounded.leaves(dtype, device))
    expected = run(form, rounded.leaves(torch.float32, device))
    for a, e in zip(actual.values(), expected.values(), strict=True):
        assert a.dtype == dtype and a.isfinite().all()
        scale = max(1.0, e.abs().max().item())
        assert_close(a.float(), e, rtol=torch.finfo(dtype).eps, atol=1e-5 * scale)


def test_state_is_float32_under_autocast(device):
    args = inputs(Case(5)).to(device)
    with torch.autocast(device.type, torch.bfloat16):
        written = abc_write(args.k, args.v, args.log_alpha)
        memories = [written, *(pieces_of(args.span(0, n), [n])[1] for n in (1, 5))]
    assert {tensor.dtype for memory in memories for tensor in memory} == {torch.float32}
