"""Hashed attention with a global memory against its definition, and the hashing itself."""

from functools import partial

import pytest
import torch
from cases import (
    PADS,
    TOLERANCE,
    Case,
    assert_all_close,
    lengthened,
    nbytes,
    padding,
    run,
    saved_for_backward,
    tokens_and_memory,
)
from pairwise import pairwise
from torch.nn.functional import normalize
from torch.testing import assert_close

from fairseq_memattn.attention import lsh_buckets, lsh_memory_attention
from fairseq_memattn.attention.ops.lsh import naive as reference

any_slots = pytest.mark.parametrize("slots", [0, 3])


def inputs(case):
    """Of tokens, whose queries are keys too, and of the memory."""
    return tokens_and_memory(case).without("k")


def double(case, device):
    return inputs(case).to(device, torch.float64)


def hashing(seed=1, buckets=4, rounds=3):
    return dict(buckets=buckets, rounds=rounds, generator=torch.Generator().manual_seed(seed))


def attend_by(case, device="cpu", seed=1, chunk_size=4, **options):
    """Of as many buckets at every call, and by the same rotations."""

    def attend(*args):
        return lsh_memory_attention(
            *args,
            **{**hashing(seed), **options},
            chunk_size=chunk_size,
            key_padding_mask=padding(case, device),
        )

    return attend


# --- Against the definition


@pairwise(
    hashed=[(1, 2), (3, 4), (4, 2)], chunk_size=[1, 4, 20], slots=[0, 3], pad=PADS, dtype=TOLERANCE
)
def test_definition(hashed, chunk_size, slots, pad, dtype, device):
    rounds, buckets = hashed
    case = Case(13, pad, slots=slots, width=3)
    leaves = inputs(case).leaves(dtype, device)
    bucket = lsh_buckets(leaves.q, **hashing(1, buckets, rounds)).cpu()
    options = dict(chunk_size=chunk_size, scale=0.7)
    attend = attend_by(case, device, rounds=rounds, buckets=buckets, **options)
    oracle = partial(
        reference.lsh_memory_attention, bucket=bucket, key_padding_mask=padding(case), **options
    )
    expected = run(oracle, inputs(case).leaves(torch.float64, "cpu"), allow_unused=True)
    assert_all_close(run(attend, leaves, allow_unused=True), expected, TOLERANCE[dtype])


@pairwise(sizes=[(1, 1), (1, 4), (2, 1), (7, 3), (8, 4), (12, 4)], slots=[0, 3])
def test_lengths(slots, sizes, device):
    length, chunk_size = sizes
    case = Case(length, slots=slots)
    leaves = inputs(case).leaves(torch.float64, device)
    bucket = lsh_buckets(leaves.q, **hashing()).cpu()
    oracle = partial(reference.lsh_memory_attention, bucket=bucket, chunk_size=chunk_size)
    expected = run(oracle, inputs(case).leaves(torch.float64, "cpu"), allow_unused=True)
    attend = attend_by(case, device, chunk_size=chunk_size)
    actual = run(attend, leaves, allow_unused=True)
    assert_all_close(actual, expected, TOLERANCE[torch.float64])


def test_a_memory_without_queries_is_only_read(device):
    x, attend = double(Case(13, "right"), device), attend_by(Case(13, "right"), device)
    out, memory = attend(*x.replace(q_mem=x.q_mem[:, :, :0]))
    assert memory.shape == (2, 2, 0, 4)
    assert_close(out, attend(*x)[0])


def test_a_pair_divided_by_its_rounds_is_a_pair_counted_once():
    """The oracle's set of tokens against Reformer's appendix A, taken literally."""
    q, v, *_ = double(Case(13), "cpu")
    k = normalize(q, dim=3)
    bucket = lsh_buckets(q, **hashing(rounds=4, buckets=2))
    tokens = list(range(13))
    nothing = [q[:, :, :0]] * 3
    out, _ = reference.lsh_memory_attention(q, v, *nothing, bucket, chunk_size=3, scale=0.7)
    several = 0
    for t in tokens:
        met = [
            [i for i in reference.met_in_a_round(t, tokens, of_round, 3) if i != t]
            for of_round in bucket[0, 1].tolist()
        ]
        several += sum(map(len, met)) - len(set().union(*met))
        expected = reference.rounds_by_equation(q[0, 1, t], k[0, 1], v[0, 1], met, 0.7)
        assert_close(out[0, 1, t], expected)
    assert several > 13


# --- What is known without hashing


def test_a_token_without_others_sees_itself(device):
    q = torch.eye(4, device=device)[None, None]
    v, nothing = torch.randn(1, 1, 4, 4, device=device), torch.zeros(1, 1, 0, 4, device=device)
    bucket = lsh_buckets(q, **hashing(3, buckets=64, rounds=1))
    assert bucket.unique().numel() == 4
    options = hashing(3, buckets=64, rounds=1)
    out, _ = lsh_memory_attention(q, v, nothing, nothing, nothing, **options)
    assert torch.equal(out, v)


# --- The hash


def test_a_bucket_is_the_nearest_direction(device):
    """argmax [x R; -x R]; a vector of zeros is in bucket 0."""
    x = torch.randn(2, 3, 9, 4, generator=torch.Generator().manual_seed(1)).to(device)
    x[:, :, -1] = 0
    generator = torch.Generator().manual_seed(2)
    rotations = torch.randn(3, 5, 4, 4, generator=generator).to(device)
    rotated = x.unsqueeze(2) @ rotations
    expected = torch.cat([rotated, -rotated], dim=4).argmax(dim=4)
    assert torch.equal(lsh_buckets(x, 8, 5, generator.manual_seed(2)), expected)


def test_without_a_generator_the_global_seed_decides(device):
    args = double(Case(40), device)
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(lsh_memory_attention(*args, chunk_size=4)[0])
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


def test_as_many_buckets_as_reformer_has(device):
    """2 S / C of them."""
    args = double(Case(13), device)
    expected = attend_by(Case(13), device, buckets=8)(*args)
    assert_close(attend_by(Case(13), device, buckets=None)(*args), expected)


# --- What changes nothing


@any_slots
def test_more_padding_on_the_right(slots, device):
    case = Case(10, "right", slots=slots)
    args, mask = double(case, device), padding(case, device)
    expected = attend_by(case, device)(*args)
    more = args.replace(q=lengthened(args.q, 2, 7, 9.0), v=lengthened(args.v, 2, 7, 9.0))
    mask = lengthened(mask, 1, 7, True)
    out, memory = lsh_memory_attention(*more, **hashing(), chunk_size=4, key_padding_mask=mask)
    assert_close((out[:, :, :10], memory), expected)
    assert not out[:, :, 10:].any()


# --- Numbers


@pairwise(pad=["none", "sentence"], dtype=[torch.bfloat16, torch.float16], slots=[0, 3])
def test_half_precision(pad, dtype, slots, device):
    case = Case(slots=slots, pad=pad)
    leaves = inputs(case).leaves(dtype, device)
    actual = list(run(attend_by(case, device), leaves, allow_unused=True).values())
    assert all(x.dtype == dtype and x.isfinite().all() for x in actual)
    expected = attend_by(case, device)(*leaves.to(torch.float32))
    assert_close(
        [x.float() for x in actual[:2]], list(expected), rtol=0, atol=4 * torch.finfo(dtype).eps
    )


def test_dropout_of_the_weights(device):
    """With a value of its own for every key, what comes out is the weights."""
    case = Case(12, slots=4, heads=16, width=16)
    q, _, q_mem, k_mem, _ = inputs(case).to(device)
    units = torch.eye(16, device=device).expand(2, 16, -1, -1)
    args = (q, units[:, :, 4:], q_mem, k_mem, units[:, :, :4])
    torch.manual_seed(0)
    for weights, dropped in zip(
        attend_by(case)(*args), attend_by(case, dropout=0.5)(*args), strict=True
    ):
        assert_close(weights.sum(dim=3), torch.ones_like(weights[..., 0]))
        kept = dropped != 0
        assert 0.4 < kept.sum() / (weights != 0).sum() < 0.6
        assert_close(dropped, 2 * weights * kept)


def test_the_backward_pass_drops_the_same_weights(device):
    """What comes out is linear in the values, so its gradient gives it back."""
    case = Case(12, slots=0)
    q, v, *nothing = double(case, device)
    v.requires_grad_()
    out, _ = attend_by(case, dropout=0.5)(q, v, *nothing)
    (gradient,) = torch.autograd.grad(out.sum(), v)
    assert_close((gradient * v).sum(), out.sum())


def test_weights_are_not_kept(device):
    case = Case(64, slots=0, batch=1, heads=1)
    leaves = inputs(case).leaves(torch.float32, device)
    saved = saved_for_backward(lambda *x: attend_by(case, chunk_size=32)(*x)[0], leaves)
    # A round has 64 x 64 weights; what comes out of all three rounds is smaller.
    assert max(nbytes(tensor) for tensor in saved if tensor.is_floating_point()) < 4 * 64 * 64


def test_gradients_of_a_token_of_zeros_are_bounded(device):
    qk, v, *memory = (torch.randn(1, 1, 6, 4, device=device) for _ in range(5))
    qk[:, :, 2] = memory[1][:, :, 0] = 0
    given = [x.requires_grad_() for x in (qk, v, *memory)]
    out, memory = lsh_memory_attention(*given, chunk_size=2, rounds=2)
    for grad in torch.autograd.grad(out.sum() + memory.sum(), given):
        assert grad.abs().max() < 1e5
