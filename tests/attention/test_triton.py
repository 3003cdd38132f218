"""The Triton kernels against the definition: on a GPU, or by Triton's interpreter without one.

A few cases; `--full` runs all lengths, sizes and paddings.
"""

import copy
import itertools

import pytest
import torch
from abc_cases import CONTROLS, Case, inputs, oracle
from cases import PADS, Inputs, assert_all_close, assert_equal, in_pieces, padding, run
from full import full
from pairwise import rows
from torch.testing import assert_close

from fairseq_memattn.attention import abc_attention, abc_step, additive_step, use_backend
from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.attention.ops import common
from fairseq_memattn.attention.ops.abc import abc_step_sums
from fairseq_memattn.attention.ops.abc.triton.launch import Plan, rows_contiguous
from fairseq_memattn.attention.ops.common import MemoryState

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 4e-2, torch.float16: 8e-3}
ALL = {
    "length": [1, 63, 64, 65, 286, 300],
    "control": list(CONTROLS),
    "pad": PADS,
    "shared": [False, True],
    "width": [16, 20, 64, 80],
    "slots": [3, 16, 33, 64],
}
FEW = [(33, "relu", "both", True, 16, 33), (9, "spikes", "sentence", False, 16, 3)]


@pytest.fixture(autouse=True)
def kernels(gpu_or_interpreter):
    with use_backend("triton"):
        yield gpu_or_interpreter


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        cases = rows(ALL.values()) if metafunc.config.getoption("--full") else FEW
        made = [dict(zip(ALL, case, strict=True)) for case in cases]
        ids = ["-".join(map(str, case)) for case in cases]
        metafunc.parametrize(
            "case", [Case(heads=1 + fields["shared"], **fields) for fields in made], ids=ids
        )


def attend(case, dtype, device):
    mask = padding(case, device)
    function = lambda *x: abc_attention(*x, causal=True, key_padding_mask=mask)  # noqa: E731
    return run(function, inputs(case).leaves(dtype, device))


def test_outputs_and_gradients(case, device):
    # Logits of 500 have errors of 3e-5 in float32.
    tolerance = 1e-4 if case.control == "spikes" else TOLERANCE[torch.float32]
    assert_all_close(attend(case, torch.float32, device), oracle(case, True), tolerance)


def test_log_sums(case, device):
    """Of the read logits, which a softmax over more than the slots needs, from a given memory."""
    mask = padding(case, device)

    def attend(q, k, v, log_alpha):
        log_alpha = common.omit_padding(log_alpha, mask, -torch.inf)
        state = MemoryState.empty(k, v, log_alpha)
        outs = []
        for piece in zip(*(x.split(100, dim=2) for x in (q, k, v, log_alpha)), strict=True):
            *out, state, log_sum = abc_step_sums(*piece, state)
            seen = torch.where(log_sum > common.EMPTY / 2, log_sum, 0.0)
            outs.append(torch.cat([*out, seen.unsqueeze(3)], dim=3))
        return torch.cat(outs, dim=2), *state[:2]

    tolerance = 1e-4 if case.control == "spikes" else TOLERANCE[torch.float32]
    given = inputs(case)
    found = run(attend, given.leaves(torch.float32, device))
    with use_backend("naive"):
        assert_all_close(found, run(attend, given.leaves(torch.float64, device)), tolerance)


@pytest.mark.parametrize("shared", [full(False), full(True)])
def test_queries_in_groups_over_fewer_heads_of_keys(shared, device):
    case = Case(33, "both", heads=2, width=16, slots=16, shared=shared)
    mask, q = padding(case, device), torch.randn(2, 4, 33, 16)

    def in_pieces_of(*x):
        return in_pieces(abc_step, x, [1, 32], key_padding_mask=mask)[0]

    leaves = inputs(case).replace(q=q).leaves(torch.float32, device)
    found = run(in_pieces_of, leaves)
    with use_backend("naive"):
        assert_all_close(found, run(in_pieces_of, leaves), TOLERANCE[torch.float32])


@pytest.mark.parametrize("dtype", [torch.bfloat16, full(torch.float16)])
def test_half_precision(dtype, device):
    assert_close_to_exact(Case(41, "both", width=24, slots=5, heads=1), dtype, device)


def with_a_mean(case, mean, deviation):
    """As those of projections with biases: late slots hold nearly the same keys."""
    given = inputs(case)
    for x in (given.k, given.v):
        x.mul_(deviation).add_(mean)
    return given


def assert_late_close(actual, expected, tolerance, first):
    for name, wanted in expected.items():
        if wanted.dim() == 4:
            late, exact = (x.double().cpu()[:, :, first:] for x in (actual[name], wanted))
            assert (late - exact).norm() <= tolerance * exact.norm(), name


@pytest.mark.full
@pytest.mark.parametrize("slots", [5, full(33)])
@pytest.mark.parametrize(
    ("dtype", "mean", "deviation", "tolerance"),
    [
        (torch.bfloat16, 3, 0.3, 0.025),
        full(torch.bfloat16, 0, 1, 0.02),
        full(torch.float16, 3, 0.3, 1e-3),
        full(torch.float32, 8, 1, 2e-3),
    ],
)
def test_keys_and_values_with_a_mean(dtype, mean, deviation, tolerance, slots, device):
    case = Case(200, width=24, slots=slots, heads=1, batch=1)
    rounded = with_a_mean(case, mean, deviation).to(dtype)

    def gradients(dtype, device):
        leaves = rounded.leaves(dtype, device)
        return run(lambda *x: abc_attention(*x, causal=True), leaves)

    with use_backend("naive"):
        expected = gradients(torch.float64, "cpu")
    assert_late_close(gradients(dtype, device), expected, tolerance, 100)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_means_of_sequences_in_pieces(dtype, device):
    """Padding has another mean, a memory is given, and heads share a control."""
    case = Case(150, "both", shared=True, width=16, batch=2)
    given = with_a_mean(case, 3, 0.3)
    for x in (given.k, given.v):
        x.masked_fill_(padding(case)[:, None, :, None], 100)
    rounded = given.to(dtype)

    def gradients(dtype, device):
        mask = padding(case, device)

        def steps(*args):
            out, state = in_pieces(abc_step, args, [70, 80], key_padding_mask=mask)
            return out, state.keys, state.values

        return run(steps, rounded.leaves(dtype, device))

    with use_backend("naive"):
        expected = gradients(torch.float64, "cpu")
    assert_late_close(gradients(dtype, device), expected, 0.03, 40)


@pytest.mark.parametrize("pad", [full("none"), "left"])
def test_later_chunks_change_nothing(pad, device):
    """Not by rounding either, and what is not finite stays where it is."""
    case = Case(70, pad, width=16, batch=1)
    given, mask = with_a_mean(case, 3, 0.3).to(device).to(torch.bfloat16), padding(case, device)
    outs = []
    for later in (1.0, torch.nan):
        for x in given:
            x[:, :, 64:] = later
        outs.append(abc_attention(*given, causal=True, key_padding_mask=mask)[:, :, :64])
    assert torch.equal(*outs)


@pytest.mark.full
def test_gates_of_long_sequences(device):
    """The gradient of a gate sums those of all later write logits: bfloat16 had 0.14."""
    torch.manual_seed(3)
    layer = ABCAttention(32, 1, slots=8, control="gated", causal=True).eval().bfloat16()
    exact = copy.deepcopy(layer).double()
    x = torch.randn(1, 200, 32).add(2).bfloat16()
    found = []
    for module, given in ((layer.to(device), x.to(device)), (exact, x.double())):
        out = module(given)
        weight = module.control.proj.weight
        found.append(torch.autograd.grad(out.double().cumsum(1).sin().sum(), weight)[0].cpu())
    actual, wanted = found
    assert (actual.double() - wanted).norm() <= 0.03 * wanted.norm()


def test_derivatives_in_forward_mode_are_refused(device):
    given = inputs(Case(4)).to(device)
    state = MemoryState.empty(given.k, given.v, given.log_alpha)
    token = given.span(0, 1)
    for function, x in (
        (lambda v: abc_attention(given.q, given.k, v, given.log_alpha, causal=True), given.v),
        (lambda v: abc_step(token.q, token.k, v, token.log_alpha, state)[0], token.v),
    ):
        with pytest.raises(RuntimeError, match="no derivatives in forward mode"):
            torch.func.jvp(function, (x,), (x,))


def test_tokens_that_are_far_apart():
    """Offsets within a chunk have 32 bits."""
    far = torch.empty_strided((1, 1, 3, 2), (2, 2, 2**26, 1), device="meta")
    assert rows_contiguous(far).stride(2) == 2
    near = torch.empty_strided((1, 1, 3, 2), (2, 2, 2**24, 1), device="meta")
    assert rows_contiguous(near) is near


@pytest.mark.full
@pytest.mark.parametrize("dtype", [full(torch.float32), torch.float16])
def test_wide_heads(dtype, device):
    """More than 128 dimensions have other blocks."""
    assert_close_to_exact(Case(35, "left", width=136, slots=3, heads=1, batch=1), dtype, device)


def assert_close_to_exact(case, dtype, device):
    """Against the definition in float64, of inputs that are rounded to the dtype."""
    rounded = inputs(case).to(dtype).to(torch.float64)
    mask = padding(case)

    def exact(*args):
        with use_backend("naive"):
            return abc_attention(*args, causal=True, key_padding_mask=mask)

    expected = run(exact, rounded.leaves(torch.float64, "cpu"))
    assert_all_close(attend(case, dtype, device), expected, TOLERANCE[dtype])


def assert_continues_exactly(case, device):
    """Outputs, the last memory, and the gradients of both, from a memory that is not empty."""
    # Logits of 200 have errors of 1e-5 in float32.
    tolerance = 1e-4 if case.control == "late +200" else 2e-5
    pieces = [5, 33, 1, case.length - 39]

    def steps(*args):
        mask = padding(case, args[0].device)
        out, state = in_pieces(abc_step, args, pieces, key_padding_mask=mask)
        return out, state.keys, state.values, state.log_mass.clamp(min=-1e4)

    leaves = inputs(case).leaves
    actual = run(steps, leaves(torch.float32, device))
    with use_backend("naive"):
        expected = run(steps, leaves(torch.float64, "cpu"))
    assert_all_close(actual, expected, tolerance)


@pytest.mark.parametrize("control", [full("relu"), "late +200"])
def test_split_and_continued(control, device):
    assert_continues_exactly(Case(45, "both", control=control, shared=True, batch=1), device)


@pytest.mark.full
@pytest.mark.parametrize(
    ("control", "shared"), [("plain", False), full("late +200", True), full("relu", True)]
)
def test_several_chunks(control, shared, device):
    case = Case(144, "both", control=control, shared=shared, batch=2)
    assert_continues_exactly(case, device)


@pytest.mark.full
@pytest.mark.parametrize("shared", [full(False), full(True)])
def test_some_heads_at_a_time(shared, device, monkeypatch):
    """The backward pass where the memories of all heads at once are too large."""
    monkeypatch.setattr(Plan, "group", 2)
    assert_continues_exactly(Case(40, "both", shared=shared, heads=3, batch=1), device)


@pytest.mark.full
def test_additive(device):
    case = Case(140, "both", shared=True)
    phi = inputs(case).log_alpha
    phi[:, :, :20, 1] = phi[..., 2] = 0
    given = inputs(case).replace(log_alpha=phi / 8)

    def steps(*args):
        mask = padding(case, args[0].device)
        out, state = in_pieces(additive_step, args, [1, 134, 5], key_padding_mask=mask)
        return out, state.keys, state.values

    actual = run(steps, given.leaves(torch.float32, device))
    with use_backend("naive"):
        expected = run(steps, given.leaves(torch.float64, "cpu"))
    assert_all_close(actual, expected, 2e-5)


@pytest.mark.full
def test_packed_sequences(device):
    """As if each were alone; two of them are empty, and four positions are in none."""
    lengths = [1, 0, 97, 5, 0]
    ends = [0, *itertools.accumulate(lengths)]
    case = Case(sum(lengths) + 4, batch=1)
    cu_seqlens = torch.tensor(ends, dtype=torch.int32, device=device)

    def packed(*args):
        return abc_attention(*args, causal=True, cu_seqlens=cu_seqlens)

    actual = run(packed, inputs(case).leaves(torch.float32, device))
    with use_backend("naive"):
        expected = run(packed, inputs(case).leaves(torch.float64, device))
    assert_all_close(actual, expected, 1e-5)


@pytest.mark.parametrize("value", [full(1e6), torch.nan])
def test_what_is_in_no_packed_sequence(value, device):
    """Changes no gradient in half precision, where the means of keys and values are left out."""
    lengths = [20, 16]
    case = Case(sum(lengths) + 4, width=16, batch=1)
    given = with_a_mean(case, 3, 0.3).to(torch.bfloat16)
    cu_seqlens = torch.tensor([0, 20, 36], device=device)

    def packed(*args):
        return abc_attention(*args, causal=True, cu_seqlens=cu_seqlens)[:, :, :36]

    with use_backend("naive"):
        exact = run(packed, given.leaves(torch.float64, device))
    given.k[:, :, 36:] = given.v[:, :, 36:] = value
    actual = run(packed, given.leaves(torch.bfloat16, device))
    for name, expected in exact.items():
        found, wanted = actual[name].double()[:, :, :36], expected[:, :, :36]
        assert (found - wanted).norm() <= 0.03 * wanted.norm(), name


def test_lengths_that_nobody_has_read(device, monkeypatch):
    """The kernels stay inside their tensors where `cu_seqlens` of a GPU does not."""
    monkeypatch.setattr(common, "IMMEDIATE", set())
    given = inputs(Case(40, batch=1)).to(device)
    outs = []
    for end in (40, 4000):
        cu_seqlens = torch.tensor([0, 3, end], device=device)
        outs.append(abc_attention(*given, causal=True, cu_seqlens=cu_seqlens))
    assert torch.equal(*outs)


@pytest.mark.full
def test_strides(device):
    """Of inputs, of gradients, and of what a hook keeps for the backward pass."""
    case = Case(37, batch=1, width=5)
    given = inputs(case).to(device)
    by_time = given.map(lambda x: x.transpose(1, 3).contiguous().transpose(1, 3))

    def summed(args):
        args = args.map(lambda x: x.detach().requires_grad_())
        out, state = abc_step(*args, MemoryState.empty(args.k, args.v, args.log_alpha))
        total = out.sum() + state.keys.mT.contiguous().mT.sum() + state.values.mean()
        return out, *torch.autograd.grad(total, tuple(args))

    expected = summed(given)
    assert_equal(summed(by_time), expected)
    contiguous = lambda x: x.contiguous()  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(contiguous, contiguous):
        assert_equal(summed(given), expected)


def test_not_a_number(device):
    """A write logit that is NaN is not taken for one that writes nothing."""
    given = inputs(Case(40, batch=1)).to(device)
    given.log_alpha[0, 0, 35, 1] = torch.nan
    out = abc_attention(*given, causal=True)
    assert out[0, 0, 35:].isnan().all()
    assert out[0, 1].isfinite().all()
    out, _ = abc_step(*given.span(35, 36), None)
    assert out[0, 0].isnan().all()


def test_one_kernel_for_all_lengths():
    """Triton compiles none again for a length or a number of heads of 1, or that 16 divides."""
    from fairseq_memattn.attention.ops.abc.triton import kernels, launch

    for name in ("states", "scan", "attend", "queries_back", "scan_back", "tokens_back"):
        kernel = getattr(kernels, name)
        options = kernel.kwargs if launch.INTERPRETED else vars(kernel)
        assert options["do_not_specialize"] == kernels.VARYING


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_device_that_is_not_the_current_one():
    first, second = (attend(Case(37, "left"), torch.float32, f"cuda:{n}") for n in (0, 1))
    assert_equal((x.cpu() for x in first.values()), (x.cpu() for x in second.values()))


@pytest.mark.parametrize("shared", [False, True])
def test_a_step_in_place(shared, device):
    """The fused step, in tensors that stay the same."""
    case = Case(5, "left", control="relu", shared=shared)
    given, mask = inputs(case).to(device), padding(case, device)
    state = MemoryState.empty(given.k, given.v, given.log_alpha)
    tensors = [*state]

    def step(*args, state, key_padding_mask):
        return abc_step(*args, state, key_padding_mask=key_padding_mask, in_place=True)

    out, state = in_pieces(step, given, [1] * 5, state, mask)
    assert all(new is old for new, old in zip(state, tensors, strict=True))
    with use_backend("naive"):
        wanted, after = in_pieces(abc_step, given, [1] * 5, None, mask)
    for actual, expected in zip((out, *state), (wanted, *after), strict=True):
        assert_close(actual, expected, rtol=0, atol=1e-5)


def test_other_sizes_and_dtypes_are_left_to_torch(device):
    """Kernels have no float64 and no more than 256 slots."""
    for given in (inputs(Case(4)).to(torch.float64), inputs(Case(4, slots=257))):
        given = Inputs(**vars(given.to(device)))
        actual = abc_attention(*given, causal=True)
        with use_backend("chunked"):
            assert torch.equal(actual, abc_attention(*given, causal=True))


def test_a_tensor_of_the_cpu(monkeypatch):
    from fairseq_memattn.attention.ops.abc.triton import launch

    monkeypatch.setattr(launch, "INTERPRETED", False)
    with pytest.raises(ValueError, match="needs tensors on a GPU, but `q` is on cpu instead"):
        abc_attention(*inputs(Case(4)), causal=True)
