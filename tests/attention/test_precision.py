"""Long sequences, means and half precision against float64 of the same rounded inputs."""

import copy

import pytest
import torch
from full import full

from fairseq_memattn.attention.controls.base import FloatLinear
from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.attention.ops.common import over_tokens


def relative_errors(module, x, *, autocast=False):
    """Of the output and the gradients of the weights, in the L2 norm, by name."""
    exact = copy.deepcopy(module).double()
    weights = torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    found = []
    for layer, inputs in ((module, x), (exact, x.double())):
        on = autocast and layer is module
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            out = layer(inputs)
        names, parameters = zip(*layer.named_parameters(), strict=True)
        grads = torch.autograd.grad((out.double() * weights).sum(), parameters)
        found.append({"out": out.detach(), **dict(zip(names, grads, strict=True))})
    actual, wanted = found
    del wanted["k_proj.bias"]  # a softmax takes no notice of it: its gradient is 0
    return {name: error(actual[name], wanted[name]) for name in wanted}


def error(actual, wanted):
    return float((actual.double() - wanted).norm() / wanted.norm())


def layer(control, causal, **options):
    torch.manual_seed(3)
    return ABCAttention(16, 1, slots=4, control=control, causal=causal, **options).eval()


def with_mean(mean, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)) + mean


@pytest.mark.parametrize(
    ("control", "causal"),
    [("gated", True), ("gated", False), full("mlp", True), full("mlp", False)],
)
def test_long_sequences(control, causal):
    """Sums over all tokens, in which what cancels would be lost."""
    errors = relative_errors(layer(control, causal), with_mean(2, 1, 4096, 16))
    # The gate's gradient had 2e-2 when normalisers were summed over all tokens.
    assert max(errors.values()) < (1e-3 if causal else 1e-4), errors


def test_write_logits_under_autocast():
    """What an exponential function is taken of is in float32: bfloat16 had 0.21."""
    errors = relative_errors(layer("mlp", True), 5 * with_mean(0, 1, 256, 16), autocast=True)
    assert errors["control.proj.weight"] < 0.08, errors


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_projection_in_float32(dtype):
    module = FloatLinear(4, 3).to(dtype)
    x = torch.randn(2, 4).to(dtype)
    wanted = torch.nn.functional.linear(x.double(), module.weight.double(), module.bias.double())
    out = module(x)
    assert out.dtype == (dtype if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(out.double(), wanted, rtol=0, atol=1e-6)


def test_shares_of_many_tokens():
    logits = 4 * with_mean(0, 1, 1, 65536, 2)
    assert error(over_tokens(logits), logits.double().softmax(dim=2)) < 2e-5


@pytest.mark.parametrize("causal", [True, full(False)])
def test_features_that_float16_cannot_hold(causal):
    """exp(-14), of which float16 has one bit: its gradient was 0 or NaN."""
    module = layer("elu", causal).half()
    for proj in (module.q_proj, module.k_proj):
        torch.nn.init.constant_(proj.bias, -14)
    errors = relative_errors(module, with_mean(0, 1, 64, 16).half())
    assert max(errors.values()) < 1e-2, errors


def test_the_floor_of_small_normalisers():
    """RFA's gates are nearly closed, so that the squares of the normaliser underflow."""
    torch.manual_seed(3)
    module = ABCAttention(32, 2, slots=4, control="rfa", causal=True, rfa_gate=True).eval()
    torch.manual_seed(5)
    x = -200 * torch.rand(2, 40, 32)
    exact = copy.deepcopy(module).double()(x.double())
    assert error(module(x).detach(), exact.detach()) < 1e-4
