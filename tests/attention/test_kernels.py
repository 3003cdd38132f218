"""Kernel attention and its feature maps: against the definition, and what has to hold anyway."""

from dataclasses import dataclass
from functools import cache

import cases
import pytest
import torch
from cases import (
    PADS,
    assert_all_close,
    assert_equal,
    draw,
    nbytes,
    padding,
    run,
    saved_for_backward,
)
from pairwise import pairwise
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import elu, linear, logsigmoid, normalize
from torch.testing import assert_close

from fairseq_memattn.attention.controls import Sizes, Tokens, make_control
from fairseq_memattn.attention.controls.elu import ELUFeatures
from fairseq_memattn.attention.controls.rfa import Gate, RandomFeatures
from fairseq_memattn.attention.controls.t2r import T2RFeatures
from fairseq_memattn.attention.ops.common import accumulation_dtype
from fairseq_memattn.attention.ops.kernel import naive as reference
from fairseq_memattn.attention.ops.kernel.chunked import (
    kernel_attention,
    kernel_read,
    kernel_step,
    kernel_write,
)


@dataclass(frozen=True, kw_only=True)
class Case(cases.Case):
    """features: of `FEATURES`; gate: of `ALL_GATES`; size: F."""

    features: str = "positive"
    gate: str = "none"
    size: int = 5

    @property
    def floor(self):
        return 0.4 if self.features == "signed" else 0.0


FEATURES = {"positive": lambda x: x.exp(), "relu": torch.relu, "signed": lambda x: x}
# The logits of g for (B, H, S); "shared" by the heads.
GATES = {
    "per head": lambda x: x,
    "shared": lambda x: x[:, :1],
    "near 0": lambda x: x - 5,
    "near 1": lambda x: x + 9,
    "switching": lambda x: 12 * x,
}


def inputs(case):
    """phi_q (B, H, T, F), phi_k (B, H, S, F), v (B, H, S, D), and log_gate (B, H or 1, S)."""
    rows = (case.batch, case.heads)
    drawn = draw(
        case.length,
        phi_q=(*rows, case.length, case.size),
        phi_k=(*rows, case.keys, case.size),
        v=(*rows, case.keys, case.width),
        log_gate=(*rows, case.keys),
    )
    function = FEATURES[case.features]
    features = drawn.replace(phi_q=function(drawn.phi_q), phi_k=function(drawn.phi_k))
    if case.gate == "none":
        return features.without("log_gate")
    if case.gate == "resets":
        log_gate = logsigmoid(drawn.log_gate)
        return features.replace(log_gate=log_gate.masked_fill(log_gate > -0.4, -torch.inf))
    return features.replace(log_gate=logsigmoid(GATES[case.gate](drawn.log_gate)))


@cache
def oracle(case, is_causal):
    mask = padding(case)

    def attend(*args):
        return reference.kernel_attention(
            *args, causal=is_causal, key_padding_mask=mask, floor=case.floor
        )

    return run(attend, inputs(case).leaves(torch.float64, "cpu"))


def attention(phi_q, phi_k, v, log_gate=None, **options):
    return kernel_attention(phi_q, phi_k, v, log_gate=log_gate, **options)


def check(case, is_causal, dtype, device, chunk_size=None):
    mask = padding(case, device)

    def attend(*args):
        return attention(
            *args, causal=is_causal, key_padding_mask=mask, chunk_size=chunk_size, floor=case.floor
        )

    actual = run(attend, inputs(case).leaves(dtype, device))
    assert {result.dtype for result in actual.values()} == {dtype}
    assert_all_close(actual, oracle(case, is_causal), TOLERANCE[dtype])


def in_pieces(args, sizes, state=None, mask=None, floor=0.0):
    """Causal attention continued from piece to piece, `sizes` tokens at a time."""

    def step(phi_q, phi_k, v, log_gate=None, **options):
        return kernel_step(phi_q, phi_k, v, log_gate=log_gate, floor=floor, **options)

    return cases.in_pieces(step, args, sizes, state, mask)


def full(*args, **options):
    return attention(*args, causal=False, **options)


def causal(*args, **options):
    return attention(*args, causal=True, chunk_size=4, **options)


def stepwise(*args, key_padding_mask=None, floor=0.0):
    ones = [1] * args[0].shape[2]
    return in_pieces(args, ones, mask=key_padding_mask, floor=floor)[0]


TOLERANCE = {torch.float64: 1e-11, torch.float32: 3e-5}
ALL_GATES = ["none", "resets", *GATES]
any_gate = pytest.mark.parametrize("gate", ALL_GATES)
any_form = pytest.mark.parametrize("form", [full, causal, stepwise])
any_causal_form = pytest.mark.parametrize("form", [causal, stepwise])


def double(case, device):
    return inputs(case).to(device, torch.float64)


# --- Against the definition


@pairwise(length=[1, 7, 67], is_causal=[False, True], features=FEATURES, dtype=TOLERANCE)
def test_lengths(length, is_causal, features, dtype, device):
    heads = 1 if length > 7 else 2
    check(Case(length, features=features, batch=1, heads=heads), is_causal, dtype, device)


@pairwise(lengths=[(1, 9), (9, 1), (5, 13)], features=FEATURES, dtype=TOLERANCE)
def test_full_attention_over_another_length(lengths, features, dtype, device):
    queries, source = lengths
    case = Case(queries, "left", features=features, source=source)
    check(case, False, dtype, device)


@pairwise(
    form=[(False, "none"), (True, "none"), (True, "per head"), (True, "shared")],
    pad=PADS,
    features=FEATURES,
    dtype=TOLERANCE,
)
def test_padding(form, pad, features, dtype, device):
    is_causal, gate = form
    case = Case(11, pad, features=features, gate=gate)
    check(case, is_causal, dtype, device, 4 if is_causal else None)


@pairwise(chunk_size=[1, 6, 13, None], features=FEATURES, gate=ALL_GATES, dtype=TOLERANCE)
def test_chunks_and_gates(chunk_size, features, gate, dtype, device):
    check(Case(13, features=features, gate=gate, batch=1), True, dtype, device, chunk_size)


@any_gate
@pytest.mark.parametrize("length", [1, 13])
def test_definition_is_the_recurrence(length, gate, device):
    args = double(Case(length, gate=gate), "cpu")
    recurrent, state = reference.recurrent_attention(*args)
    assert_close(recurrent, reference.kernel_attention(*args, causal=True))
    _, actual = in_pieces(args.to(device), [length])
    for a, e in zip(actual, state, strict=True):
        assert_close(a.cpu(), e)


@pytest.mark.parametrize("gate", ["none", "near 0", "near 1", "switching"])
def test_long_sequences(gate, device):
    """No gate, however near 0 or 1 for however long, overflows or loses what came after."""
    case = Case(2000, gate=gate, batch=1, heads=1)
    args = inputs(case)
    expected, state = reference.recurrent_attention(*args)
    leaves = args.leaves(torch.float32, device)
    out, *grads = run(lambda *x: attention(*x, causal=True), leaves).values()
    assert_close(out.cpu().double(), expected, rtol=0, atol=2e-5)
    assert all(grad.isfinite().all() and grad.any() for grad in grads)
    _, after = in_pieces(args.to(device), [2000])
    for actual, wanted in zip(after, state, strict=True):
        assert_close(actual.cpu().double(), wanted, rtol=2e-5, atol=2e-5)


# --- What attention computes


@any_form
def test_floor_of_the_normaliser(form, device):
    """A query that points away from its only key, and one that is orthogonal to it."""
    args = double(Case(1, features="signed"), device)
    orthogonal = args.phi_k - (args.phi_k * args.phi_q).sum(-1, keepdim=True) * (
        args.phi_q / args.phi_q.square().sum(-1, keepdim=True)
    )
    for phi_k, expected in [(args.phi_q, 1), (-args.phi_q, -2.5), (orthogonal, 0)]:
        out = form(args.phi_q, phi_k, args.v, floor=0.4)
        assert_close(out, expected * args.v)
    assert (form(args.phi_q, -args.phi_q, args.v) == 0).all()


@any_form
def test_features_that_are_all_zero_give_zeros(form, device):
    leaves = inputs(Case(9)).leaves(torch.float64, device)
    leaves.phi_q.data[:, :, 4] = 0
    leaves.phi_k.data[:, :, :3] = 0
    out, *grads = run(form, leaves).values()
    assert (out[:, :, 4] == 0).all() and (out[:, :, 5:] != 0).all()
    assert form is full or (out[:, :, :3] == 0).all()
    assert all(grad.isfinite().all() for grad in grads)


@any_causal_form
def test_gates_of_0_and_1(form, device):
    """g = 1 writes nothing, as padding does, and g = 0 makes a token the first one."""
    leaves = inputs(Case(12, gate="per head")).leaves(torch.float64, device)
    padded = torch.zeros(2, 12, dtype=torch.bool, device=device)
    padded[0, [0, 3, 4, 10]] = padded[1, 5] = True
    closed = leaves.log_gate.masked_fill(padded.unsqueeze(1), 0.0)
    expected = form(*leaves, key_padding_mask=padded)
    assert_close(form(*leaves.replace(log_gate=closed)), expected)
    forgetful = closed.index_fill(2, torch.tensor(6, device=device), -torch.inf)
    ungated = leaves.without("log_gate")
    out, *grads = run(lambda *x: form(*x, forgetful), ungated).values()
    assert_close(out[:, :, :6], expected[:, :, :6])
    assert_close(out[:, :, 6:], form(*leaves.replace(log_gate=forgetful).span(6, 12)))
    assert all(grad.isfinite().all() for grad in grads)


# --- The state


@pairwise(sizes=[[1] * 13, [13], [5, 1, 1, 6]], features=FEATURES, gate=ALL_GATES)
def test_pieces_give_what_the_whole_gives(sizes, features, gate, device):
    case = Case(13, "both", features=features, gate=gate)
    args, mask = double(case, device), padding(case, device)
    whole = causal(*args, key_padding_mask=mask, floor=case.floor)
    pieces, state = in_pieces(args, sizes, mask=mask, floor=case.floor)
    assert_close(pieces, whole)
    if gate == "none":  # after its last token, causal attention has read what full attention reads
        assert_close(tuple(state), tuple(kernel_write(args.phi_k, args.v, mask)))
        read = kernel_read(args.phi_q, state, floor=case.floor)
        assert_close(read, full(*args, key_padding_mask=mask, floor=case.floor))


@any_gate
@pytest.mark.parametrize("size", [1, 3])
def test_padding_leaves_the_state_exactly_unchanged(size, gate, device):
    args = inputs(Case(8, gate=gate)).to(device)
    _, state = in_pieces(args.span(0, 5), [5])
    pads = torch.ones(2, size, dtype=torch.bool, device=device)
    _, after = in_pieces(args.span(5, 5 + size), [size], state, pads)
    assert_equal(after, state)


@pairwise(length=[1, 3, 70], dtype=[torch.float32, torch.bfloat16, torch.float16])
def test_state_is_float32_and_of_one_size(length, dtype, device):
    args = inputs(Case(length)).to(device, dtype)
    with torch.autocast(device.type, torch.bfloat16):
        out, state = kernel_step(*args, None)
    assert [tensor.shape for tensor in state] == [(2, 2, 5, 4), (2, 2, 5)]
    assert {tensor.dtype for tensor in state} == {torch.float32}
    assert all(nbytes(tensor) == 4 * tensor.numel() for tensor in state)
    assert out.dtype == dtype


# --- Derivatives, precision and memory


@pytest.mark.parametrize("features", ["positive", "signed"])
@pytest.mark.parametrize("gate", ["none", "per head", "shared"])
def test_numerical_derivatives(gate, features, device):
    case = Case(6, "left", features=features, gate=gate, batch=1, size=3, width=2)
    mask = padding(case, device)
    leaves = tuple(inputs(case).leaves(torch.float64, device))

    def attend(*args):
        options = dict(key_padding_mask=mask, floor=case.floor)
        return causal(*args, **options), *([] if args[3:] else [full(*args, **options)])

    assert gradcheck(attend, leaves)
    assert gradgradcheck(attend, leaves, fast_mode=True)


@pairwise(form=[full, causal, stepwise], features=FEATURES, dtype=[torch.bfloat16, torch.float16])
def test_half_precision_rounds_the_result_and_nothing_else(dtype, features, form, device):
    case = Case(37, features=features)
    rounded = inputs(case).to(dtype)

    def attend(*args):
        return form(*args, floor=case.floor)

    actual = run(attend, rounded.leaves(dtype, device))
    expected = run(attend, rounded.leaves(torch.float32, device))
    for a, e in zip(actual.values(), expected.values(), strict=True):
        assert a.dtype == dtype
        atol = 1e-5 * max(1.0, e.abs().max().item())
        assert_close(a.float(), e, rtol=torch.finfo(dtype).eps, atol=atol)


@pytest.mark.parametrize("gate", ["none", "per head"])
def test_saves_no_state_for_every_token(gate, device):
    """A state for each prefix would be T x F x D numbers a head."""
    case = Case(512, gate=gate, batch=1, size=32, width=32)
    leaves = inputs(case).leaves(torch.float32, device)
    saved = saved_for_backward(lambda *x: attention(*x, causal=True), leaves)
    sizes = [nbytes(tensor) / 4 / case.heads / case.length for tensor in saved]
    assert max(sizes) <= 64  # a row of numbers for every token, or of a chunk's C x C matrix
    assert sum(sizes) <= 5 * (32 + 32 + 64)


# --- Feature maps


def features(heads=2, width=4, size=6):
    return {
        "elu": ELUFeatures(width),
        "t2r": T2RFeatures(heads, width, size),
        "gaussian": RandomFeatures(heads, width, size),
    }


any_map = pytest.mark.parametrize("name", features())


@any_map
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_one_interface(name, dtype, device):
    function = features()[name].to(device, dtype)
    x = torch.randn(3, 2, 7, 4, device=device, dtype=dtype, requires_grad=True)
    phi = function(x, is_query=True)
    assert phi.dtype == accumulation_dtype(x) and phi.shape == (3, 2, 7, function.feature_size)
    assert torch.equal(function(x, is_query=False), phi)
    torch.testing.assert_close(function(x[:, :, 2:3], is_query=False), phi[:, :, 2:3])
    (phi * torch.randn_like(phi)).sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in [x, *function.parameters()])
    assert name == "gaussian" or (phi >= 0).all() and function.floor == 0


@any_map
def test_zeros_are_mapped_without_a_nan(name):
    x = torch.zeros(1, 2, 3, 4, requires_grad=True)
    features()[name](x, is_query=True).sum().backward()
    assert x.grad.isfinite().all()


def test_random_features_keep_their_precision_under_autocast(device):
    function = RandomFeatures(2, 4, 6).to(device)
    x = torch.randn(3, 2, 7, 4, device=device)
    expected = function(x, is_query=True)
    with torch.autocast(device.type, torch.bfloat16):
        assert_close(function(x, is_query=True), expected)


def test_elu(device):
    x = torch.linspace(-9, 9, 37, device=device, dtype=torch.float64).view(1, 1, 37, 1)
    assert_close(ELUFeatures(1)(x, is_query=True), elu(x) + 1)
    # where float32 rounds elu(x) + 1 to nothing
    low = torch.full((1, 1, 1, 1), -30.0, device=device)
    assert_close(ELUFeatures(1)(low, is_query=True), low.exp(), rtol=1e-6, atol=0)


def test_random_features_estimate_their_kernel():
    """The mean over many sets of random vectors, with a sigma of its own in each dimension."""
    function = RandomFeatures(1, 4, 400, bank_size=400).double()
    function.sigma.data.copy_(torch.tensor([0.5, 1.0, 1.5, 2.0]))
    x, y = torch.randn(2, 1, 1, 9, 4, dtype=torch.float64)
    estimates = []
    for i in range(400):
        phi_x, phi_y = (function(z, is_query=True, draw=torch.tensor([i])) for z in (x, y))
        estimates.append((phi_x * phi_y).sum(-1))
    estimate = torch.stack(estimates)
    first, second = (function.sigma * normalize(z, dim=-1) for z in (x, y))
    expected = (-(first - second).square().sum(dim=-1) / 2).exp()
    error = (estimate.mean(0) - expected).abs()
    assert (error < 4 * estimate.std(0) / 400**0.5).all()
    assert (error < 0.02 * expected.abs().max()).all()


def test_random_vectors_come_from_the_seed_and_the_checkpoint():
    one, same, other = (RandomFeatures(2, 4, 6, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.bank, same.bank) and not torch.equal(one.bank, other.bank)
    assert one.bank.shape == (200, 3, 4)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.bank, other.bank)


def test_random_vectors_are_drawn_by_the_caller():
    function = RandomFeatures(3, 4, 6)
    x = torch.randn(1, 1, 5, 4).expand(1, 3, 5, 4)
    evaluated = function.eval()(x, is_query=True)
    assert not torch.allclose(evaluated[:, 0], evaluated[:, 1])  # every head has its own set
    draw = function.draw()
    drawn = function(x, is_query=True, draw=draw)
    assert not torch.allclose(drawn, evaluated)
    assert torch.equal(function(x, is_query=False, draw=draw), drawn)
    assert torch.equal(function(x, is_query=True), evaluated)
    assert len(set(draw.tolist())) == 3


def test_attention_draws_in_training_alone():
    control = make_control("rfa", Sizes(8, 6, attention_heads=2, head_dim=4)).eval()
    q, k, v = torch.randn(3, 2, 2, 5, 4)
    x = torch.randn(2, 5, 8)
    evaluated = control.attend(q, k, v, Tokens(x), causal=True)
    assert torch.equal(control.attend(q, k, v, Tokens(x), causal=True), evaluated)
    drawn = control.train().attend(q, k, v, Tokens(x), causal=True)
    assert not torch.allclose(drawn, evaluated)
    assert not torch.allclose(control.attend(q, k, v, Tokens(x), causal=True), drawn)
    assert torch.equal(control.eval().attend(q, k, v, Tokens(x), causal=True), evaluated)


def test_gate(device):
    gate = Gate(6, 2).to(device)
    x = torch.randn(3, 5, 6, device=device)
    log_gate = gate(x)
    assert log_gate.shape == (3, 2, 5)
    logits = linear(x, gate.proj.weight, gate.proj.bias)
    assert_close(log_gate[1, 0, 4].exp(), logits[1, 4, 0].sigmoid())
    assert gate.bfloat16()(x.bfloat16()).dtype == torch.float32
