"""Chunks and windows with a global memory against equation 3, and who sees whom."""

from functools import cache, partial

import pytest
import torch
from cases import (
    PADS,
    TOLERANCE,
    Case,
    any_padding,
    assert_all_close,
    attention_to_something,
    nbytes,
    padding,
    run,
    saved_for_backward,
)
from cases import tokens_and_memory as inputs
from pairwise import pairwise
from torch.testing import assert_close

from fairseq_memattn.attention import Window, global_memory_attention, window_memory_attention
from fairseq_memattn.attention.ops.global_memory import chunked as module
from fairseq_memattn.attention.ops.global_memory import naive as reference

SPARSE = {
    "chunks": (global_memory_attention, dict(chunk_size=4)),
    "window": (window_memory_attention, dict(window=Window(5))),
}


def force(form, monkeypatch):
    monkeypatch.setattr(module, "_copies_dominate", lambda chunk, slots: form == "apart")


@pytest.fixture(params=["beside", "apart"])
def form(request, monkeypatch):
    """Runs a test by either form for chunks, whatever the shape."""
    force(request.param, monkeypatch)


@pytest.fixture(params=["beside", "apart", "window"])
def sparse(request, monkeypatch):
    """Runs a test for chunks, by either form, and for windows."""
    if request.param == "window":
        return "window"
    force(request.param, monkeypatch)
    return "chunks"


@pytest.fixture(autouse=True)
def every_query_sees_something(monkeypatch):
    monkeypatch.setattr(module, "scaled_dot_product_attention", attention_to_something)


def double(case, device):
    return inputs(case).to(device, torch.float64)


def attend_by(sparse, case, device="cpu", **options):
    function, setting = SPARSE[sparse]
    mask = padding(case, device)
    return partial(function, **{**setting, **options}, key_padding_mask=mask)


@cache
def chunks_by_definition(case, chunk_size, scale=None):
    options = dict(chunk_size=chunk_size, scale=scale, key_padding_mask=padding(case))
    leaves = inputs(case).leaves(torch.float64, "cpu")
    return run(partial(reference.global_memory_attention, **options), leaves, allow_unused=True)


def check_chunks(case, chunk_size, dtype, device, scale=None):
    attend = attend_by("chunks", case, device, chunk_size=chunk_size, scale=scale)
    actual = run(attend, inputs(case).leaves(dtype, device), allow_unused=True)
    assert_all_close(actual, chunks_by_definition(case, chunk_size, scale), TOLERANCE[dtype])


# --- Against the definition


@pairwise(
    indirect=["form"],
    chunk_size=[1, 4, 20],
    slots=[0, 1, 3],
    pad=PADS,
    dtype=TOLERANCE,
    form=["beside", "apart"],
)
def test_chunks(chunk_size, slots, pad, dtype, form, device):
    check_chunks(Case(13, pad, slots=slots), chunk_size, dtype, device)


@pairwise(
    indirect=["form"],
    sizes=[(1, 1), (1, 4), (2, 1), (7, 3), (8, 4), (12, 4)],
    slots=[0, 1, 3],
    pad=PADS,
    form=["beside", "apart"],
)
def test_lengths(sizes, slots, pad, form, device):
    length, chunk_size = sizes
    check_chunks(Case(length, pad, slots=slots), chunk_size, torch.float64, device)


@pytest.mark.parametrize("case", [Case(9, "right", slots=8), Case(5, slots=40)], ids=str)
def test_more_memory_than_tokens(case, form, device):
    check_chunks(case, 2, torch.float64, device, scale=0.7)


@pairwise(
    window=[Window(1), Window(5), Window(40), Window(3, dilation=2), Window(2, stride=2)],
    slots=[0, 1, 3],
    pad=PADS,
    dtype=TOLERANCE,
)
def test_windows(window, slots, pad, dtype, device):
    case = Case(11, pad, slots=slots, heads=1)
    options = dict(window=window, scale=0.7, key_padding_mask=padding(case))
    leaves = inputs(case).leaves(torch.float64, "cpu")
    expected = run(partial(reference.window_memory_attention, **options), leaves, allow_unused=True)
    attend = attend_by("window", case, device, window=window, scale=0.7)
    actual = run(attend, inputs(case).leaves(dtype, device), allow_unused=True)
    assert_all_close(actual, expected, TOLERANCE[dtype])


@pytest.mark.parametrize("chunk_size", [4, 20])
def test_a_memory_without_queries_is_only_read(chunk_size, sparse, device):
    case = Case(13, "right")
    x = double(case, device)
    options = {} if sparse == "window" else {"chunk_size": chunk_size}
    attend = attend_by(sparse, case, device, **options)
    out, memory = attend(*x.replace(q_mem=x.q_mem[:, :, :0]))
    assert memory.shape == (2, 2, 0, 4)
    assert_close(out, attend(*x)[0])


# --- The form


@pytest.mark.parametrize(
    "chunk_size, slots, length, name",
    [
        (8, 64, 16, "_attend_apart"),
        (8, 8, 16, "_attend_beside"),
        (64, 128, 128, "_attend_beside"),
        (8, 64, 8, "attend_to_all"),
    ],
)
def test_the_shape_decides(chunk_size, slots, length, name, monkeypatch):
    class Chosen(Exception):
        """The form that the test expects was taken."""

    def choose(*args):
        raise Chosen

    monkeypatch.setattr(module, name, choose)
    with pytest.raises(Chosen):
        global_memory_attention(*inputs(Case(length, slots=slots)), chunk_size=chunk_size)


def bytes_kept(chunks, chunk_size, slots):
    case = Case(chunks * chunk_size - 1, slots=slots, batch=1, heads=1, width=8)
    attend = partial(global_memory_attention, chunk_size=chunk_size)
    saved = saved_for_backward(attend, inputs(case).leaves(torch.float32, "cpu"))
    return sum(map(nbytes, saved))


@pytest.mark.parametrize("chunk_size, slots", [(4, 8), (16, 8)])
def test_what_is_kept_grows_with_the_number_of_chunks(chunk_size, slots):
    fewer, more = (bytes_kept(chunks, chunk_size, slots) for chunks in (32, 64))
    assert more < 2.05 * fewer


# --- Numbers


@pairwise(
    indirect=["sparse"],
    pad=["none", "sentence"],
    dtype=[torch.bfloat16, torch.float16],
    slots=[0, 1, 3],
    sparse=["beside", "apart", "window"],
)
def test_half_precision(pad, dtype, slots, sparse, device):
    case = Case(slots=slots, pad=pad)
    attend = attend_by(sparse, case, device)
    leaves = inputs(case).leaves(dtype, device)
    actual = list(run(attend, leaves, allow_unused=True).values())
    assert all(x.dtype == dtype and x.isfinite().all() for x in actual)
    expected = attend(*leaves.to(torch.float32))
    assert_close(
        [x.float() for x in actual[:2]], list(expected), rtol=0, atol=8 * torch.finfo(dtype).eps
    )


@any_padding
def test_logits_beyond_the_range_of_half_precision(pad, sparse, device):
    case = Case(pad=pad)
    args = inputs(case)
    leaves = args.replace(q=200 * args.q, k=200 * args.k).leaves(torch.float16, device)
    assert (leaves.q.float() * leaves.k.float()).sum(dim=3).abs().max() > 65504
    results = run(attend_by(sparse, case, device), leaves, allow_unused=True)
    assert all(result.isfinite().all() for result in results.values())


def test_dropout_of_the_weights(sparse, device):
    """With a value of its own for every key, what comes out is the weights."""
    case = Case(12, slots=4, heads=16, width=16)
    q, k, _, q_mem, k_mem, _ = inputs(case).to(device)
    units = torch.eye(16, device=device).expand(2, 16, -1, -1)
    args = (q, k, units[:, :, 4:], q_mem, k_mem, units[:, :, :4])
    attend = attend_by(sparse, case, device)
    torch.manual_seed(0)
    for weights, dropped in zip(attend(*args), attend(*args, dropout=0.5), strict=True):
        assert_close(weights.sum(dim=3), torch.ones_like(weights[..., 0]))
        kept = dropped != 0
        assert 0.4 < kept.sum() / (weights != 0).sum() < 0.6
        assert_close(dropped, 2 * weights * kept)
