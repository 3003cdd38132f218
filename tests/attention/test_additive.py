"""Additive attention against its definition: outputs and gradients, with padding on either side."""

from functools import cache

import pytest
import torch
from abc_cases import Case, Inputs, assert_all_close, inputs, padding, run
from pairwise import pairwise

from fairseq_memattn.attention import additive_attention, additive_step
from fairseq_memattn.attention.ops.abc import abc_read
from fairseq_memattn.attention.ops.additive import additive_write, naive

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5}
# phi of what `inputs` draws: of any sign; nothing in half of the entries and in the last slot, but
# something in the first slot (a phi of exactly 0 has no defined gradient where nothing is written).
CONTROLS = {
    "signed": lambda x: x,
    "sparse": lambda x: torch.cat([x[..., :1], x[..., 1:-1].relu(), 0 * x[..., -1:]], dim=3),
}


def given(case, control):
    drawn = inputs(case)
    return drawn._replace(log_alpha=CONTROLS[control](drawn.log_alpha))


@cache
def oracle(case, control, is_causal):
    leaves, mask = given(case, control).leaves(torch.float64, torch.device("cpu")), padding(case)

    def attend(*args):
        return naive.additive_attention(*args, causal=is_causal, key_padding_mask=mask)

    return run(attend, leaves)


def check(case, control, is_causal, dtype, device, attend):
    leaves, mask = given(case, control).leaves(dtype, device), padding(case)
    mask = mask if mask is None else mask.to(device)
    actual = run(lambda *args: attend(*args, key_padding_mask=mask), leaves)
    assert_all_close(actual, oracle(case, control, is_causal), TOLERANCE[dtype])


def written_and_read(q, k, v, phi, key_padding_mask):
    return abc_read(q, additive_write(k, v, phi, key_padding_mask))


def in_pieces(*args, key_padding_mask, sizes):
    outputs, state, start = [], None, 0
    for size in sizes:
        at = slice(start, start + size)
        mask = None if key_padding_mask is None else key_padding_mask[:, at]
        out, state = additive_step(*(x[:, :, at] for x in args), state, key_padding_mask=mask)
        outputs.append(out)
        start += size
    return torch.cat(outputs, dim=2)


PADS = ["none", "left", "right", "both", "sentence"]


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
    case = Case(length, pad=pad if length > 7 else "none", shared=shared)

    def attend(*args, key_padding_mask):
        options = dict(causal=is_causal, key_padding_mask=key_padding_mask, chunk_size=chunk_size)
        return additive_attention(*args, **options)

    check(case, control, is_causal, dtype, device, attend)


@pairwise(control=CONTROLS, pad=PADS, shared=[False, True], sizes=[(1,) * 15, (5, 1, 9), (15,)])
def test_pieces(control, pad, shared, sizes, device):
    case = Case(15, pad=pad, shared=shared)

    def attend(*args, key_padding_mask):
        return in_pieces(*args, key_padding_mask=key_padding_mask, sizes=sizes)

    check(case, control, True, torch.float64, device, attend)


@pairwise(control=CONTROLS, pad=PADS, shared=[False, True], queries=[1, 4, 15])
def test_written_once(control, pad, shared, queries, device):
    case = Case(queries, pad=pad, shared=shared, source=15)
    check(case, control, False, torch.float64, device, written_and_read)


@pytest.mark.parametrize("is_causal", [False, True])
def test_scale(is_causal, device):
    q, *rest = Inputs(*(x.double().to(device) for x in given(Case(7), "signed")))
    scaled = additive_attention(q, *rest, causal=is_causal, scale=1.7)
    expected = naive.additive_attention(q, *rest, causal=is_causal, scale=1.7)
    torch.testing.assert_close(scaled, expected)
