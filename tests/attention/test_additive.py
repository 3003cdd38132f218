"""Additive attention against its definition: outputs and gradients, with padding on either side."""

from functools import cache

import pytest
import torch
from abc_cases import Case, inputs
from cases import PADS, TOLERANCE, assert_all_close, in_pieces, padding, run
from pairwise import pairwise

from fairseq_memattn.attention import additive_attention, additive_step
from fairseq_memattn.attention.ops.abc import abc_read
from fairseq_memattn.attention.ops.additive import additive_write, naive

# phi of what `inputs` draws: of any sign; nothing in half of the entries and in the last slot, but
# something in the first slot (a phi of exactly 0 has no defined gradient where nothing is written).
CONTROLS = {
    "signed": lambda x: x,
    "sparse": lambda x: torch.cat([x[..., :1], x[..., 1:-1].relu(), 0 * x[..., -1:]], dim=3),
}


def given(case, control):
    drawn = inputs(case)
    return drawn.replace(log_alpha=CONTROLS[control](drawn.log_alpha))


@cache
def oracle(case, control, is_causal):
    mask = padding(case)

    def attend(*args):
        return naive.additive_attention(*args, causal=is_causal, key_padding_mask=mask)

    return run(attend, given(case, control).leaves(torch.float64, "cpu"))


def check(case, control, is_causal, dtype, device, attend):
    mask, leaves = padding(case, device), given(case, control).leaves(dtype, device)
    actual = run(lambda *args: attend(*args, key_padding_mask=mask), leaves)
    assert_all_close(actual, oracle(case, control, is_causal), TOLERANCE[dtype])


def written_and_read(q, k, v, phi, key_padding_mask):
    return abc_read(q, additive_write(k, v, phi, key_padding_mask))


@pairwise(
    length=[1, 7, 15, 65],
    control=CONTROLS,
    pad=PADS,
    shared=[False, True],
    is_causal=[False, True],
    dtype=TOLERANCE,
    chunk_size=[None, 1, 4],
)
def test_whole_sequences(length, control, pad, shared, is_causal, dtype, chunk_size, device):
    case = Case(length, pad, shared=shared)

    def attend(*args, key_padding_mask):
        options = dict(causal=is_causal, key_padding_mask=key_padding_mask, chunk_size=chunk_size)
        return additive_attention(*args, **options)

    check(case, control, is_causal, dtype, device, attend)


@pairwise(control=CONTROLS, pad=PADS, shared=[False, True], sizes=[(1,) * 15, (5, 1, 9), (15,)])
def test_pieces(control, pad, shared, sizes, device):
    case = Case(15, pad, shared=shared)

    def attend(*args, key_padding_mask):
        return in_pieces(additive_step, args, sizes, key_padding_mask=key_padding_mask)[0]

    check(case, control, True, torch.float64, device, attend)


@pairwise(control=CONTROLS, pad=PADS, shared=[False, True], queries=[1, 4, 15])
def test_written_once(control, pad, shared, queries, device):
    case = Case(queries, pad, shared=shared, source=15)
    check(case, control, False, torch.float64, device, written_and_read)


@pytest.mark.parametrize("is_causal", [False, True])
def test_scale(is_causal, device):
    q, *rest = given(Case(7), "signed").to(device, torch.float64)
    scaled = additive_attention(q, *rest, causal=is_causal, scale=1.7)
    expected = naive.additive_attention(q, *rest, causal=is_causal, scale=1.7)
    torch.testing.assert_close(scaled, expected)


def test_gradients_of_phi_before_anything_is_written(device):
    """A control vector of 0 writes nothing, whichever form computes it."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 1, 4, 3, dtype=torch.float64, device=device) for _ in range(3))
    phi = torch.randn(1, 1, 4, 2, dtype=torch.float64, device=device)
    phi[:, :, 0] = 0
    phi.requires_grad_()

    def gradient(out):
        return torch.autograd.grad(out.sum(), phi)[0]

    def stepped():
        return in_pieces(additive_step, (q, k, v, phi), [1] * 4)[0]

    whole = gradient(additive_attention(q, k, v, phi, causal=True))
    torch.testing.assert_close(gradient(stepped()), whole)
    unwritten = gradient(
        additive_attention(q, k[:, :, :1], v[:, :, :1], phi[:, :, :1], causal=False)
    )
    assert not unwritten.any()
