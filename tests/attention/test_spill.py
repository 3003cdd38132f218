"""First tokens, a window, and slots of what has left it: whole sequences and steps."""

import pytest
import torch
from cases import Case, assert_all_close, draw, in_pieces, padding, run
from full import full
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.attention.ops.rotary import Rotary
from fairseq_memattn.attention.ops.spill import (
    Places,
    Slots,
    naive,
    spill_attention,
    spill_read,
    spill_step,
    spill_write,
)

H, D, M = 2, 4, 3
ROTARY = Rotary(100.0)


def inputs(length):
    of_tokens = (2, H, length, D)
    shapes = {"q": of_tokens, "k": of_tokens, "v": of_tokens, "weight": (H, M, D), "bias": (H,)}
    return draw(length, **shapes).leaves(torch.double, "cpu")


def turn(x, position):
    return ROTARY.rotation(torch.tensor([position]), D, x.dtype).turn(x.view(1, 1, 1, D)).view(D)


def positions(case):
    """Of the tokens, those of padding are never read."""
    mask = padding(case)
    real = torch.ones(2, case.length, dtype=torch.bool) if mask is None else ~mask
    return real.cumsum(1) - 1


@pytest.mark.parametrize("pad", ["none", "both", "holes"])
@pytest.mark.parametrize("steepness", [1, 60])
@pytest.mark.parametrize(
    "length, places",
    [
        (20, Places(2, 5, M)),
        (20, Places(0, 1, M)),
        (20, Places(3, 7, 0)),
        (4, Places(6, 9, M)),
        full(70, Places(1, 5, M)),
    ],
)
def test_definition(length, places, steepness, pad):
    case = Case(length, pad)
    mask, leaves = padding(case), inputs(length)
    rotation = ROTARY.rotation(positions(case), D, torch.double)

    def write_logits(k, weight):
        return steepness * (k @ weight.transpose(1, 2))[..., : places.slots]

    def slots(weight, bias):
        return Slots(lambda k: write_logits(k, weight), bias if places.slots else None)

    def attention(q, k, v, weight, bias, causal=True):
        return spill_attention(
            *(q, k, v, places, slots(weight, bias)),
            causal=causal,
            rotation=rotation,
            key_padding_mask=mask,
        )

    def steps(q, k, v, weight, bias):
        def step(q, k, v, where, state, key_padding_mask):
            own = ROTARY.rotation(where[:, 0, :, 0], D, torch.double)
            given = {"rotation": own, "key_padding_mask": key_padding_mask}
            return spill_step(q, k, v, places, slots(weight, bias), state, **given)

        where = positions(case)[:, None, :, None]
        sizes = [1, 1, length - 2]
        return in_pieces(step, (q, k, v, where), sizes, key_padding_mask=mask)[0]

    def defined(q, k, v, weight, bias, kind="causal"):
        log_alpha, bias = write_logits(k, weight), slots(weight, bias).bias
        options = {"kind": kind, "key_padding_mask": mask}
        return naive.spill_attention(q, k, v, places, log_alpha, bias, turn, **options)

    expected = run(defined, leaves, allow_unused=True)
    for form in (attention, steps):
        assert_all_close(run(form, leaves, allow_unused=True), expected, 1e-10)
    assert_all_close(
        run(lambda *x: attention(*x, causal=False), leaves, allow_unused=True),
        run(lambda *x: defined(*x, kind="encoder"), leaves, allow_unused=True),
        1e-10,
    )


def test_short_source_is_exact():
    places = Places(1, 2, M)
    q, k, v, weight, _ = inputs(9)
    mask = torch.tensor([[1, 0, 0, 1, 0, 0, 0, 0, 1], [0, 0, 1, 1, 1, 0, 0, 1, 1]]).bool()

    def write_logits(k):
        return k @ weight.transpose(1, 2)

    state = spill_write(k, v, places, write_logits(k), mask, in_parts=True)
    out = spill_read(q, state, places, Slots(write_logits, None))
    expected = scaled_dot_product_attention(q, k, v, attn_mask=~mask[:, None, None])
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
