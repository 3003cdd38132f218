"""Grouped queries: every operation is itself on a copy of each key for its queries."""

from functools import partial

import pytest
import torch
from cases import Case, assert_all_close, draw, in_pieces, padding, run
from full import full

from fairseq_memattn.attention import (
    Window,
    abc_attention,
    abc_step,
    additive_attention,
    additive_step,
    kernel_attention,
    kernel_step,
    use_backend,
    window_attention,
    window_step,
)

H, G, D, M = 6, 2, 4, 3


def kernel(q, k, v, log_gate, **options):
    return kernel_attention(q.exp(), k.exp(), v, log_gate=-log_gate.exp(), floor=0.3, **options)


def ungated(q, k, v, **options):
    return kernel_attention(q.exp(), k.exp(), v, **options)


def kernel_steps(q, k, v, log_gate, **options):
    gate = -log_gate.exp().squeeze(-1)
    return kernel_step(q.exp(), k.exp(), v, log_gate=gate, floor=0.3, **options)


def steep(q, k, v, log_alpha, **options):
    return abc_attention(q, k, v, 60 * log_alpha, **options)


WINDOWS = {"window": Window(3), "dilated": Window(3, dilation=2), "strided": Window(3, stride=2)}
OPERATIONS = {
    **{"abc": (abc_attention, M), "steep": (steep, M), "additive": (additive_attention, M)},
    **{name: (partial(window_attention, window=w), None) for name, w in WINDOWS.items()},
    "kernel": (kernel, 0),
}
STEPS = {
    **{"abc": (abc_step, M), "additive": (additive_step, M), "kernel": (kernel_steps, 1)},
    **{name: (partial(window_step, window=w), None) for name, w in WINDOWS.items()},
}


def check_groups(attend, slots, length, heads=G):
    """slots: None without control vectors, 0 for a number a token."""
    of_keys = (2, G, length, D)
    shapes = {"q": (2, H, length, D), "k": of_keys, "v": of_keys}
    if slots is not None:
        shapes["control"] = (2, heads, length, slots)[: 4 if slots else 3]
    leaves = draw(length, **shapes).leaves(torch.double, "cpu")

    def on_copies(q, *of_keys):
        return attend(q, *(x if len(x[0]) == 1 else x.repeat_interleave(3, 1) for x in of_keys))

    assert_all_close(run(attend, leaves), run(on_copies, leaves), 1e-11)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [7, full(130)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_attention(name, length, causal):
    attend, slots = OPERATIONS[name]
    if name == "kernel" and not causal:
        attend, slots = ungated, None
    mask = padding(Case(length, "both"))
    attend = partial(attend, causal=causal, key_padding_mask=mask)
    check_groups(attend, slots, length)
    if slots:
        check_groups(attend, slots, length, heads=1)
        with use_backend("naive"):
            check_groups(attend, slots, length)


@pytest.mark.parametrize("name", STEPS)
def test_steps(name):
    step, slots = STEPS[name]
    mask = padding(Case(9, "both"))

    def attend(*args):
        return in_pieces(step, args, [3, 1, 1, 4], key_padding_mask=mask)[0]

    check_groups(attend, slots, 9)


def test_packed_sequences():
    ends = torch.tensor([0, 3, 3, 7])
    leaves = draw(1, q=(1, H, 8, D), k=(1, G, 8, D), v=(1, G, 8, D), log_alpha=(1, G, 8, M))

    def attend(q, *of_keys):
        return abc_attention(q, *of_keys, causal=True, cu_seqlens=ends)

    def on_copies(q, *of_keys):
        return attend(q, *(x.repeat_interleave(3, 1) for x in of_keys))

    leaves = leaves.leaves(torch.double, "cpu")
    assert_all_close(run(attend, leaves), run(on_copies, leaves), 1e-11)


def test_heads_that_do_not_divide_are_refused():
    q, k = torch.randn(1, 4, 5, D), torch.randn(1, 3, 5, D)
    with pytest.raises(ValueError, match=r"`k` must have a number of heads that divides the 4"):
        window_attention(q, k, k, Window(3))
