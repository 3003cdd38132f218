"""Every refusal of the public functions says what is wanted and what was given."""

import pytest
import torch
from abc_cases import Case, inputs

from fairseq_memattn.attention import (
    MemoryState,
    Window,
    abc_attention,
    abc_step,
    kernel_read,
    window_read,
)

CASE = Case(5)  # 2 sentences, 2 heads, 5 tokens, 4 wide, 3 slots


def full(*args, **options):
    return abc_attention(*args, causal=False, **options)


def causal(*args, **options):
    return abc_attention(*args, causal=True, **options)


def step(*args, **options):
    return abc_step(*args, None, **options)


EVERY_FORM = pytest.mark.parametrize("form", [full, causal, step])
WRONG_SHAPES = {
    "batch of k": (dict(k=(3, 2, 5, 4)), r"`k` must match `q` \(2, 2, 5, 4\), but is \(3, 2, 5, 4"),
    "heads of k": (dict(k=(2, 1, 5, 4)), r"`k` must match `q` .*but is \(2, 1, 5, 4\) instead"),
    "width of k": (dict(k=(2, 2, 5, 6)), r"`k` must match `q` .*but is \(2, 2, 5, 6\) instead"),
    "axes of k": (dict(k=(2, 5, 4)), r"`k` must have the four axes .*but is \(2, 5, 4\) instead"),
    "axes of q": (dict(q=(2, 5, 4)), r"`q` must have the four axes .*but is \(2, 5, 4\) instead"),
    "no queries": (dict(q=(2, 2, 0, 4)), r"`q` must .*none of them empty, but is \(2, 2, 0, 4\)"),
    "no sentences": (dict(q=(0, 2, 5, 4)), r"`q` must .*none of them empty, but is \(0, 2, 5, 4"),
    "length of v": (dict(v=(2, 2, 6, 4)), r"`v` must match `k` \(2, 2, 5, 4\), but is \(2, 2, 6"),
    "heads of v": (dict(v=(2, 1, 5, 4)), r"`v` must match `k` .*but is \(2, 1, 5, 4\) instead"),
    "width of v": (dict(v=(2, 2, 5, 6)), r"`v` must match `k` .*but is \(2, 2, 5, 6\) instead"),
    "batch of log_alpha": (
        dict(log_alpha=(1, 2, 5, 3)),
        r"`log_alpha` must be \(2, 2 or 1, 5, slots\), but is \(1, 2, 5, 3\) instead",
    ),
    "heads of log_alpha": (dict(log_alpha=(2, 3, 5, 3)), r"`log_alpha` must be .*\(2, 3, 5, 3\)"),
    "length of log_alpha": (dict(log_alpha=(2, 2, 4, 3)), r"`log_alpha` must be .*\(2, 2, 4, 3\)"),
    "axes of log_alpha": (dict(log_alpha=(2, 5, 3)), r"`log_alpha` must be .*\(2, 5, 3\) instead"),
    "no slots": (dict(log_alpha=(2, 2, 5, 0)), "`log_alpha` must have at least one slot"),
}


@EVERY_FORM
@pytest.mark.parametrize("shapes, message", WRONG_SHAPES.values(), ids=WRONG_SHAPES)
def test_shapes(form, shapes, message):
    wrong = {name: torch.zeros(shape) for name, shape in shapes.items()}
    with pytest.raises(ValueError, match=message):
        form(*inputs(CASE).replace(**wrong))


@EVERY_FORM
@pytest.mark.parametrize("shape", [(1, 5), (2, 4), (2, 1, 5)], ids=str)
def test_key_padding_mask(form, shape):
    mask = torch.zeros(shape, dtype=torch.bool)
    with pytest.raises(
        ValueError, match=r"`key_padding_mask` must be \(2, 5\) of torch.bool, but is \(.*instead"
    ):
        form(*inputs(CASE), key_padding_mask=mask)


@EVERY_FORM
def test_key_padding_mask_of_another_dtype(form):
    mask = torch.zeros(2, 5, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"but is \(2, 5\) of torch.uint8 instead"):
        form(*inputs(CASE), key_padding_mask=mask)


@pytest.mark.parametrize("form", [causal, step])
def test_causal_attention_over_another_length(form):
    with pytest.raises(ValueError, match="as many queries as keys, but got 4 queries and 5 keys"):
        form(*inputs(CASE.replace(length=4, source=5)))


@pytest.mark.parametrize("chunk_size", [0, -3])
def test_chunk_size(chunk_size):
    with pytest.raises(ValueError, match=f"must be at least 1, but is {chunk_size} instead"):
        causal(*inputs(CASE), chunk_size=chunk_size)


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize(
    "other",
    [dict(batch=1), dict(heads=1), dict(slots=4), dict(width=6), dict(shared=True)],
    ids=str,
)
def test_state_of_other_inputs(other, length):
    _, state = abc_step(*inputs(CASE.replace(**other)), None)
    with pytest.raises(ValueError, match=r"`state` must have the shapes \[.*\] for these inputs"):
        abc_step(*inputs(CASE.replace(length=length)), state)


@pytest.mark.parametrize("state", [1, {}, ()], ids=repr)
def test_state_of_another_type(state):
    kind = type(state).__name__
    args = inputs(CASE)
    with pytest.raises(
        TypeError, match=f"`state` must be a MemoryState, but is of the type {kind}"
    ):
        abc_step(*args, state)
    with pytest.raises(
        TypeError, match=f"`state` must be a KernelState, but is of the type {kind}"
    ):
        kernel_read(args.q, state)
    with pytest.raises(
        TypeError, match=f"`state` must be a WindowState, but is of the type {kind}"
    ):
        window_read(args.q, state, Window(3))


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ([0, 6], r"`cu_seqlens` must rise from 0 to at most 5, but is \[0, 6\] instead"),
        ([1, 5], "`cu_seqlens` must rise from 0 to at most 5"),
        ([0, 3, 2], "`cu_seqlens` must rise from 0 to at most 5"),
        ([0.0, 5.0], r"`cu_seqlens` must be \(N \+ 1,\) of torch.int32 or torch.int64, but is"),
    ],
    ids=str,
)
def test_lengths_of_packed_sequences(ends, message):
    with pytest.raises(ValueError, match=message):
        causal(*inputs(CASE.replace(batch=1)), cu_seqlens=torch.tensor(ends))


def test_lengths_on_another_device():
    lengths = torch.empty(2, dtype=torch.int32, device="meta")
    with pytest.raises(ValueError, match="`cu_seqlens` must be on the device of `q`, cpu, but is"):
        causal(*inputs(CASE.replace(batch=1)), cu_seqlens=lengths)


def test_a_state_that_cannot_be_overwritten():
    given = inputs(CASE)
    state = MemoryState.empty(given.k, given.v, given.log_alpha)
    expanded = state._replace(keys=state.keys[:1].expand_as(state.keys))
    with pytest.raises(ValueError, match="`in_place` needs a `state` whose tensors are contiguous"):
        abc_step(*given, expanded, in_place=True)
