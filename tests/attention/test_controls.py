"""The activations of ABC-MLP, and the names of controls."""

import pytest
import torch
from torch.testing import assert_close

from fairseq_memattn.attention.controls import registry
from fairseq_memattn.attention.controls.activations import LOG_ACTIVATIONS, log_control
from fairseq_memattn.attention.controls.mlp import MLPControl
from fairseq_memattn.attention.controls.registry import all_controls, register_control

ACTIVATIONS = {"exp": torch.exp, "sigmoid": torch.sigmoid, "relu": torch.relu}


def test_every_activation_is_tested():
    assert LOG_ACTIVATIONS.keys() == ACTIVATIONS.keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name, activation", ACTIVATIONS.items())
def test_is_the_log_of_what_is_written(name, activation, dtype, device):
    logits = torch.linspace(-5, 5, 41, device=device, dtype=dtype).view(1, 1, 41, 1)
    result = log_control(logits, name)
    kept = torch.float64 if dtype == torch.float64 else torch.float32
    assert_close(result, activation(logits.to(kept)).log())


@pytest.mark.parametrize("name, slopes", [("exp", [1, 1, 1]), ("sigmoid", [1, 1, 0])])
def test_extreme_logits(name, slopes, device):
    logits = torch.tensor([-500.0, -90.0, 500.0], device=device, requires_grad=True)
    result = log_control(logits, name)
    result.sum().backward()
    assert_close(result.detach()[:2], logits.detach()[:2])
    assert_close(logits.grad, torch.tensor(slopes, device=device, dtype=torch.float32))


def test_relu_has_no_gradient_where_it_writes_nothing(device):
    logits = torch.tensor([-3.0, -0.0, 0.0, 1e-30, 2.0], device=device, requires_grad=True)
    result = log_control(logits, "relu")
    (slope,) = torch.autograd.grad(result[3:].sum() + 0 * result[:3].exp().sum(), logits)
    assert_close(slope, torch.tensor([0.0, 0.0, 0.0, 1e30, 0.5], device=device))
    (slope,) = torch.autograd.grad(log_control(logits, "relu"), logits, torch.ones_like(logits))
    assert_close(slope[:3], torch.zeros(3, device=device))


def test_unknown_activation():
    with pytest.raises(ValueError, match="one of exp, sigmoid, relu, but is 'tanh' instead"):
        log_control(torch.zeros(1, 1, 2, 3), "tanh")


# --- Names


@pytest.fixture
def names(monkeypatch):
    """The registry, restored afterwards."""
    monkeypatch.setattr(registry, "CONTROLS", dict(registry.CONTROLS))
    monkeypatch.setattr(registry, "_observers", [])


class Own(MLPControl):
    pass


@pytest.mark.parametrize("taken", ["mlp", "elu"])
def test_a_name_that_is_taken(taken, names):
    where = all_controls()[taken].__module__
    with pytest.raises(ValueError, match=f"'{taken}' is already registered, by {where}"):
        register_control(taken)(Own)
    assert all_controls()[taken] is not Own


@pytest.mark.parametrize("name", ["", "Own", "own-control", "2own", "own control"])
def test_a_name_that_is_no_word(name, names):
    with pytest.raises(ValueError, match=f"must consist of lower-case letters.* is '{name}'"):
        register_control(name)


@pytest.mark.parametrize(
    "other", [torch.nn.Linear, lambda x: x, 3], ids=["module", "function", "number"]
)
def test_what_is_no_control(other, names):
    with pytest.raises(TypeError, match="'own' must be a subclass of Control, but is "):
        register_control("own")(other)


def test_a_class_may_be_defined_again(names):
    seen = []
    registry.for_each_control(seen.append)
    again = type("Own", (MLPControl,), {"__module__": Own.__module__})
    assert register_control("own")(Own) is Own and register_control("own")(again) is again
    assert all_controls()["own"] is again
    assert seen.count("own") == 1
