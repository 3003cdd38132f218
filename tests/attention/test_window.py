"""Windows against the definition, and the queue that continues them."""

from dataclasses import dataclass
from functools import cache

import cases
import pytest
import torch
from cases import (
    PADS,
    TOLERANCE,
    assert_all_close,
    assert_equal,
    attention_to_something,
    draw,
    in_pieces,
    nbytes,
    padding,
    run,
    saved_for_backward,
    shapes_of_tokens,
)
from pairwise import pairwise
from torch.testing import assert_close

from fairseq_memattn.attention.ops import heads
from fairseq_memattn.attention.ops.window import (
    Window,
    WindowState,
    window_attention,
    window_read,
    window_step,
    window_write,
)
from fairseq_memattn.attention.ops.window import chunked as window_module
from fairseq_memattn.attention.ops.window import naive as reference
from fairseq_memattn.attention.ops.window.chunked import masked_window_attention

PATTERNS = {
    "sliding": Window(5),
    "sliding, even": Window(4),
    "dilated by 3": Window(4, dilation=3),
    "strided": Window(3, stride=2),
    "one slot": Window(1),
}
any_pattern = pytest.mark.parametrize("window", PATTERNS.values(), ids=PATTERNS)
any_direction = pytest.mark.parametrize("causal", [True, False], ids=["causal", "centred"])


@pytest.fixture(autouse=True)
def every_query_sees_something(monkeypatch):
    monkeypatch.setattr(heads, "scaled_dot_product_attention", attention_to_something)


@dataclass(frozen=True, kw_only=True)
class Case(cases.Case):
    globals: bool = False


def inputs(case):
    return draw(case.length, **shapes_of_tokens(case))


def double(case, device):
    return inputs(case).to(device, torch.float64)


def global_tokens(case):
    """Tokens 0, 3 and 4 of the first sentence, the second of the others."""
    if not case.globals:
        return None
    mask = torch.zeros(case.batch, case.length, dtype=torch.bool)
    mask[0, [0, 3, 4]] = mask[1:, 1] = True
    return mask


def masks(case, device):
    given = dict(key_padding_mask=padding(case), global_mask=global_tokens(case))
    return {name: mask.to(device) for name, mask in given.items() if mask is not None}


@cache
def oracle(case, window, causal):
    """Output and gradients of q, k and v from the definition."""
    leaves = inputs(case).leaves(torch.float64, "cpu")
    options = masks(case, "cpu")
    return run(lambda *x: reference.window_attention(*x, window, causal=causal, **options), leaves)


def check(case, window, causal, dtype, device):
    actual = run(
        lambda *x: window_attention(*x, window, causal=causal, **masks(case, device)),
        inputs(case).leaves(dtype, device),
    )
    assert_all_close(actual, oracle(case, window, causal), TOLERANCE[dtype])


# --- Against the definition


@pairwise(length=[1, 4, 33], window=PATTERNS.values(), causal=[False, True], dtype=TOLERANCE)
def test_lengths(length, window, causal, dtype, device):
    check(Case(length), window, causal, dtype, device)


@pairwise(globals=[False, True], pad=PADS, window=PATTERNS.values(), causal=[False, True])
def test_padding_and_global_tokens(globals, pad, window, causal, device):
    check(Case(15, pad, globals=globals), window, causal, torch.float64, device)


@pairwise(
    window=[Window(5), Window(10), Window(20), Window(5, dilation=3), Window(5, stride=3)],
    pad=PADS,
    causal=[False, True],
)
def test_many_blocks(window, pad, causal, device, monkeypatch):
    """Several blocks of queries, the last one cut short, and bands that reach over several."""
    monkeypatch.setattr(window_module, "BLOCK_SIZE", 8)
    check(Case(3 * 8 + 7, pad, globals=True, heads=1), window, causal, torch.float64, device)


@pairwise(window=[Window(6, dilation=3), Window(6, stride=3), Window(140)], causal=[False, True])
def test_blocks_of_their_own_size(window, causal, device):
    case = Case(2 * window_module.BLOCK_SIZE + 7, "left", globals=True, batch=1, heads=1, width=2)
    check(case, window, causal, torch.float64, device)


@pairwise(
    length=[1, 15], globals=[False, True], pad=PADS, window=PATTERNS.values(), causal=[False, True]
)
def test_the_form_that_is_exported(length, globals, pad, window, causal, device):
    case = Case(length, pad, globals=globals and length > 4)
    actual = run(
        lambda *x: masked_window_attention(*x, window, causal=causal, **masks(case, device)),
        inputs(case).leaves(torch.float64, device),
    )
    assert_all_close(actual, oracle(case, window, causal), TOLERANCE[torch.float64])


@any_pattern
def test_what_a_query_sees_is_what_the_paper_says(window):
    """The oracle's rule against the positions of equations 9 and 15, written out."""
    n = window.slots
    for t in range(40):
        last = t - t % window.stride
        distance = window.dilation * window.stride
        expected = [last - j * distance for j in reversed(range(n))]
        assert reference.seen_from(t, 40, window, causal=True) == [i for i in expected if i >= 0]


@any_direction
@pytest.mark.parametrize("length", [2, 8])
def test_a_centred_window_has_its_smaller_half_on_the_right(length, causal, device):
    window, tokens = Window(4), torch.arange(float(length), dtype=torch.float64, device=device)
    seen = torch.eye(length, dtype=torch.float64, device=device)[None, None]
    out = window_attention(torch.zeros_like(seen), seen, seen, window, causal=causal)
    right = 0 if causal else 1
    for t in range(length):
        near = (tokens - t >= right - 3) & (tokens - t <= right)
        assert_close(out[0, 0, t], near.double() / near.sum())


@any_direction
@any_pattern
def test_scale(window, causal, device):
    q, k, v = double(Case(7), device)
    scaled = window_attention(q, k, v, window, causal=causal, scale=1.7)
    assert_close(scaled, window_attention(q * 3.4, k, v, window, causal=causal))


# --- The recurrence of the paper


@pytest.mark.parametrize("length", [3, 11])
def test_the_state_is_the_queue_of_the_paper(length, device):
    """K~ <- U K~ + e_n (x) k, token by token."""
    args = double(Case(length), device)
    _, state = pieces_of(args, Window(4), [1] * length)
    for kept, given in ((state.keys, args.k), (state.values, args.v)):
        for b in range(2):
            for h in range(2):
                assert_close(kept[b, h].cpu(), reference.queue_of(given[b, h].cpu(), 4))


@pytest.mark.parametrize("slots", [1, 3])
def test_a_dilation_of_2_is_two_queues(slots, device):
    args = double(Case(11), device)
    out = window_attention(*args, Window(slots, dilation=2))
    for b in range(2):
        for h in range(2):
            q, k, v = args.map(lambda x, b=b, h=h: x[b, h].cpu())
            expected = reference.odd_even_attention(q, k, v, slots, scale=0.5)
            assert_close(out[b, h].cpu(), expected)


@any_pattern
def test_the_memory_of_cross_attention_is_what_the_last_token_sees(window, device):
    args = double(Case(13), device)
    state = window_write(args.k, args.v, window)
    for b in range(2):
        for h in range(2):
            where = reference.seen_from(12, 13, window, causal=True)
            q, k, v = args.map(lambda x, b=b, h=h: x[b, h].cpu())
            expected = [reference.read(query, k[where], v[where], 0.5) for query in q]
            assert_close(window_read(args.q, state, window)[b, h].cpu(), torch.stack(expected))


# --- The state


def pieces_of(args, window, sizes, state=None, key_padding_mask=None):
    """Causal attention continued from piece to piece, `sizes` tokens at a time."""

    def step(q, k, v, state, key_padding_mask):
        return window_step(q, k, v, window, state, key_padding_mask=key_padding_mask)

    return in_pieces(step, args, sizes, state, key_padding_mask)


@pairwise(
    sizes=[[1] * 15, [3, 1, 5, 6]], pad=["both", "holes", "sentence"], window=PATTERNS.values()
)
def test_pieces_give_what_the_whole_gives(sizes, pad, window, device):
    case = Case(15, pad)
    mask = padding(case, device)

    def attend(*args):
        return pieces_of(args, window, sizes, key_padding_mask=mask)[0]

    actual = run(attend, inputs(case).leaves(torch.float64, device))
    assert_all_close(actual, oracle(case, window, True), TOLERANCE[torch.float64])


@any_pattern
@pytest.mark.parametrize("length", [2 * window_module.BLOCK_SIZE, 4 * window_module.BLOCK_SIZE + 9])
def test_a_long_piece_after_a_short_one(length, window, device):
    """Rows that the short piece leaves in different phases."""
    case = Case(length, heads=1, width=2)
    args = double(case, device)
    mask = torch.zeros(2, length, dtype=torch.bool, device=device)
    mask[1, :2] = True
    out, _ = pieces_of(args, window, [3, length - 3], key_padding_mask=mask)
    assert_close(out, window_attention(*args, window, key_padding_mask=mask))


@pairwise(length=[1, 13], pad=["both", "sentence"], window=PATTERNS.values())
def test_writing_at_once_leaves_what_steps_leave(length, pad, window, device):
    case = Case(length, pad)
    args, mask = double(case, device), padding(case, device)
    _, expected = pieces_of(args, window, [1] * length, key_padding_mask=mask)
    _, in_one = window_step(*args, window, None, key_padding_mask=mask)
    for state in (in_one, window_write(args.k, args.v, window, mask)):
        assert_equal(state, expected)


@pairwise(size=[1, 3], written=[0, 5], window=PATTERNS.values())
def test_padding_leaves_the_state_exactly_unchanged(size, written, window, device):
    args = inputs(Case(8)).to(device)
    nothing = torch.ones(2, 5, dtype=torch.bool, device=device)
    _, state = window_step(
        *args.span(0, 5), window, None, key_padding_mask=None if written else nothing
    )
    out, after = window_step(
        *args.span(5, 5 + size), window, state, key_padding_mask=nothing[:, :size]
    )
    assert_equal(after, state)
    assert not out.any()


@pairwise(
    length=[1, 3, 150],
    dtype=[torch.float32, torch.bfloat16, torch.float16],
    window=PATTERNS.values(),
)
def test_the_state_is_of_one_size(length, dtype, window, device):
    args = inputs(Case(length)).to(device, dtype)
    empty = WindowState.empty(args.k, args.v, window)
    out, state = window_step(*args, window, None)
    for kept, start in zip(state, empty, strict=True):
        assert (kept.shape, kept.dtype) == (start.shape, start.dtype)
        # Not a view either, which would keep the whole sequence alive.
        assert nbytes(kept) == kept.numel() * kept.element_size()
    assert state.keys.shape == (2, 2, window.slots * window.dilation, 4)
    assert out.dtype == state.keys.dtype == dtype


# --- Numerical derivatives, padding, batches, precision


@any_pattern
def test_reading_a_queue_that_is_empty_gives_zeros(window, device):
    q, k, v = double(Case(4), device)
    mask = torch.tensor([[True] * 4, [False] * 4], device=device)
    out = window_read(q, window_write(k, v, window, mask), window)
    assert not out[0].any() and (out[1] != 0).all()


@pairwise(dtype=[torch.bfloat16, torch.float16], window=PATTERNS.values(), causal=[True, False])
def test_half_precision(dtype, window, causal, device):
    rounded = inputs(Case(37)).to(device, dtype)
    actual = window_attention(*rounded, window, causal=causal)
    expected = window_attention(*rounded.to(torch.float32), window, causal=causal)
    assert actual.dtype == dtype
    assert_close(actual.float(), expected, rtol=0, atol=4 * torch.finfo(dtype).eps)


def test_takes_memory_for_bands_and_not_for_all_pairs(device):
    length = 4096
    leaves = inputs(Case(length, heads=1)).leaves(torch.float32, device)
    saved = saved_for_backward(lambda *x: window_attention(*x, Window(16)), leaves)
    assert max(map(nbytes, saved)) < 4 * 2 * length * 128
