"""The fast forms against the definition: outputs and gradients of q, k, v and log_alpha."""

import pytest
import torch
from abc_cases import STEEP, Case, CountingStable, fast, inputs, oracle
from cases import PADS, TOLERANCE, assert_all_close
from pairwise import pairwise

from fairseq_memattn.attention import abc_attention, abc_step
from fairseq_memattn.attention.ops.abc import chunked as causal
from fairseq_memattn.attention.ops.abc import naive as reference

DIRECTIONS = pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])


def small(length, **fields):
    return Case(length, batch=1, heads=1, **fields)


@pytest.fixture
def stable(monkeypatch):
    counter = CountingStable()
    monkeypatch.setattr(causal, "_stable_attention", counter)
    return counter


def check(case, is_causal, dtype, device, chunk_size=None):
    actual = fast(case, is_causal, dtype, device, chunk_size)
    assert_all_close(actual, oracle(case, is_causal), TOLERANCE[dtype])


@pairwise(length=[1, 2, 7, 37], is_causal=[False, True], dtype=TOLERANCE)
def test_lengths(length, is_causal, dtype, device):
    check(Case(length, batch=1, heads=1 if length > 7 else 2), is_causal, dtype, device)


@pairwise(length=[64, 65], dtype=TOLERANCE)
def test_chunks_of_their_own_size(length, dtype, device):
    check(small(length), True, dtype, device)


@pairwise(lengths=[(1, 9), (9, 1), (5, 13)], dtype=TOLERANCE)
def test_full_attention_over_another_length(lengths, dtype, device):
    queries, source = lengths
    check(Case(queries, batch=1, source=source), False, dtype, device)


@pairwise(
    chunk_size=[1, 2, 5, 16, 36, 37, 64], control=["plain", "relu", "rise +50"], dtype=TOLERANCE
)
def test_chunk_sizes(chunk_size, control, dtype, device):
    check(small(37, control=control), True, dtype, device, chunk_size)


@pairwise(
    control=["plain", "relu", "spikes"],
    pad=PADS,
    shared=[False, True],
    is_causal=[False, True],
    dtype=TOLERANCE,
)
def test_padding_and_shared_control(control, pad, shared, is_causal, dtype, device):
    case = Case(11, pad, control=control, shared=shared)
    check(case, is_causal, dtype, device, chunk_size=4 if is_causal else None)


@pairwise(
    control=["relu", "spikes", "first +500", "dip -500", "late +200", "rise +50", "+3 each"],
    is_causal=[False, True],
    dtype=TOLERANCE,
)
def test_extreme_write_logits(control, is_causal, dtype, device, stable):
    check(small(37, control=control), is_causal, dtype, device)
    assert stable.calls == (1 if is_causal and control in STEEP else 0)


@pairwise(control=["plain", "relu", "first +500"], pad=["none", "both"], dtype=TOLERANCE)
def test_stable_form_wherever_the_factored_one_would_do(
    control, pad, dtype, device, stable, stable_form
):
    check(Case(21, pad, control=control, batch=1, shared=True), True, dtype, device)
    assert stable.calls == 1


@DIRECTIONS
def test_scale(is_causal, device):
    case = small(7)
    q, *rest = inputs(case).to(device, torch.float64)
    scaled = abc_attention(q, *rest, causal=is_causal, scale=1.7)
    expected = abc_attention(q * 1.7 * case.width**0.5, *rest, causal=is_causal)
    torch.testing.assert_close(scaled, expected)


@pytest.mark.parametrize("shared", [False, True], ids=["per_head", "shared"])
def test_definition_is_the_recurrence_of_equation_5(shared):
    case = inputs(Case(13, shared=shared)).to(torch.float64)
    recurrent, _ = reference.recurrent_attention(*case)
    torch.testing.assert_close(recurrent, reference.abc_attention(*case, causal=True))


@pytest.mark.parametrize("shared", [False, True], ids=["per_head", "shared"])
def test_final_memory_is_the_recurrence_s(shared, device):
    case = inputs(Case(13, shared=shared)).to(torch.float64)
    _, expected = reference.recurrent_attention(*case)
    _, state = abc_step(*case.to(device), None)
    for actual, wanted in zip(state, expected, strict=True):
        torch.testing.assert_close(actual.cpu(), wanted[:, : actual.shape[1]])
