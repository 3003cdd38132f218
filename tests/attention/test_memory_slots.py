"""MemAttention against its definition, and who sees whom."""

from dataclasses import KW_ONLY, dataclass
from functools import cache

import cases
import pytest
import torch
from cases import (
    PADS_OF_SEQUENCES,
    TOLERANCE,
    assert_all_close,
    draw,
    nbytes,
    padding,
    run,
    saved_for_backward,
)
from pairwise import pairwise
from torch.testing import assert_close

from fairseq_memattn.attention import mem_attention, slot_position_bias
from fairseq_memattn.attention.ops.memory_slots import naive as reference


@dataclass(frozen=True)
class Case(cases.Case):
    """length: of every sequence; slots: of every sequence; biased: whether positions count."""

    length: int = 5
    _: KW_ONLY
    sequences: int = 3
    slots: int = 2
    biased: bool = True


def inputs(case):
    """q, k and v (B, K, H, M + S, D), and the table of biases."""
    shape = (case.batch, case.sequences, case.heads, case.slots + case.length, case.width)
    return draw(case.length, q=shape, k=shape, v=shape, table=(9, case.heads))


def attend_by(function, case, device="cpu", **options):
    """q, k, v and the table of biases to the output of either form."""
    mask = padding(case, device)
    sizes = (case.sequences, case.slots, case.length)

    def attend(q, k, v, table):
        bias = slot_position_bias(table, *sizes, max_distance=4) if case.biased else None
        return function(q, k, v, slots=case.slots, bias=bias, key_padding_mask=mask, **options)

    return attend


@cache
def oracle(case, scale):
    leaves = inputs(case).leaves(torch.float64, "cpu")
    attend = attend_by(reference.mem_attention, case, scale=scale)
    return run(attend, leaves, allow_unused=not case.biased)


def assert_matches_the_oracle(case, dtype, device, scale=1.0):
    attend = attend_by(mem_attention, case, device, scale=scale)
    leaves = inputs(case).leaves(dtype, device)
    actual = run(attend, leaves, allow_unused=not case.biased)
    assert_all_close(actual, oracle(case, scale), TOLERANCE[dtype])


@pairwise(length=[4, 7], slots=[1, 3], pad=PADS_OF_SEQUENCES, dtype=TOLERANCE)
def test_equations_6_to_14(length, slots, pad, dtype, device):
    assert_matches_the_oracle(Case(length, pad, slots=slots), dtype, device)


@pairwise(
    case=[
        Case(sequences=1),
        Case(1, sequences=4, slots=1),
        Case(3, sequences=2, slots=5),
        Case(biased=False),
    ],
    scale=[1.0, 0.5],
)
def test_other_sizes(scale, case, device):
    assert_matches_the_oracle(case, torch.float64, device, scale)


# --- Numbers


@pairwise(dtype=[torch.bfloat16, torch.float16], pad=["none", "absent", "nothing"])
def test_half_precision(pad, dtype, device):
    case = Case(pad=pad)
    attend = attend_by(mem_attention, case, device)
    leaves = inputs(case).leaves(dtype, device)
    actual, *gradients = run(attend, leaves).values()
    assert actual.dtype == dtype
    assert all(gradient.isfinite().all() for gradient in gradients)
    expected = attend(*leaves.to(torch.float32))
    assert_close(actual.float(), expected, rtol=0, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("pad", ["none", "absent"])
def test_logits_beyond_the_range_of_half_precision(pad, device):
    case = Case(pad=pad)
    args = inputs(case)
    leaves = args.replace(q=200 * args.q, k=200 * args.k).leaves(torch.float16, device)
    assert (leaves.q.float() * leaves.k.float()).sum(dim=4).abs().max() > 65504
    results = run(attend_by(mem_attention, case, device), leaves)
    assert all(result.isfinite().all() for result in results.values())


def test_dropout_of_the_weights(device):
    """With a value of its own for every key, what comes out is the weights."""
    sequences, slots, length = 3, 2, 4
    columns = sequences * slots + length
    q, k = torch.randn(2, 1, sequences, 1, slots + length, columns, device=device)
    units = torch.eye(columns, device=device)
    v = torch.stack([torch.cat([units[2 * i : 2 * i + 2], units[6:]]) for i in range(sequences)])
    v = v[None, :, None]
    weights = mem_attention(q, k, v, slots=slots, scale=0.1)
    assert_close(weights.sum(dim=4), torch.ones_like(weights[..., 0]))
    torch.manual_seed(0)
    dropped = mem_attention(q, k, v, slots=slots, scale=0.1, dropout=0.5)
    kept = dropped != 0
    assert 0.3 < kept.float().mean() < 0.7
    assert_close(dropped, 2 * weights * kept)


def test_weights_are_not_kept(device):
    case = Case(64, sequences=4, batch=1, heads=1, width=8)
    leaves = inputs(case).without("table").leaves(torch.float32, device)
    saved = saved_for_backward(lambda *x: mem_attention(*x, slots=case.slots), leaves)
    rows, columns = case.slots + case.length, case.sequences * case.slots + case.length
    assert max(map(nbytes, saved)) < 4 * case.sequences * rows * columns / 4
