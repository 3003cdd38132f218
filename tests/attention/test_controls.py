"""The activations of ABC-MLP, and the names and options of controls."""

from dataclasses import dataclass, field

import pytest
import torch
from torch.testing import assert_close

from fairseq_memattn.attention.controls import (
    ControlOptions,
    OptionError,
    Sizes,
    Tokens,
    make_control,
    option,
    registry,
)
from fairseq_memattn.attention.controls.base import NormalisedControl, PositionControl
from fairseq_memattn.attention.controls.mlp import LOG_ACTIVATIONS, MLPControl, log_control
from fairseq_memattn.attention.controls.random import RandomControl
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
    "name", [Own, lambda x: x, 3, None], ids=["class", "function", "int", "None"]
)
def test_a_name_that_is_missing(name, names):
    """As in `@register_control` without parentheses."""
    with pytest.raises(TypeError):
        register_control(name)


def test_a_class_may_be_defined_again(names):
    seen = []
    registry.for_each_control(seen.append)
    again = type("Own", (MLPControl,), {"__module__": Own.__module__})
    assert register_control("own")(Own) is Own and register_control("own")(again) is again
    assert all_controls()["own"] is again
    assert seen.count("own") == 1


# --- Options


def declared(annotation: object, default: object, name: str = "speed") -> type:
    """A control with one option, as its author would write it."""
    body = {"__annotations__": {name: annotation}, name: default}
    options = dataclass(frozen=True)(type("OwnOptions", (ControlOptions,), body))
    return type("OwnControl", (RandomControl,), {"Options": options})


@pytest.mark.parametrize(
    "annotation, default, name, message",
    [
        (float, 1.0, "speed", r"`speed` .*'own' must be made with option\(default, help\)"),
        (list, option([], "steps"), "speed", r"`speed` .*must be a bool, int, .* but is .*list"),
        (int, option("q", "steps"), "speed", "'own' is refused: `speed` must be an int, .* 'q'"),
        (int, option(0, "steps", at_least=1), "speed", "'own' is refused: `speed` must be at le"),
        (int, option(4, "n", choices=(1, 2)), "speed", "`speed` must be one of 1, 2, but is 4"),
        (int, option(1, "slots"), "slots", "`slots` .*must have another name"),
        (int, option(1, "slots"), "cross_slots", "`cross_slots` .*must have another name"),
    ],
    ids=[
        *("no option()", "type", "default's type", "default's limit", "default's choice"),
        *("argument of a layer", "flag of a model"),
    ],
)
def test_options_that_cannot_be(annotation, default, name, message, names):
    default = field(default_factory=list) if annotation is list else default
    if annotation is list:
        default = field(default_factory=list, metadata=option(0, "steps").metadata)
    with pytest.raises((TypeError, ValueError), match=message):
        register_control("own")(declared(annotation, default, name))
    assert "own" not in all_controls()


@pytest.mark.parametrize("value", [float("nan"), "2", True], ids=str)
def test_a_value_that_is_no_number_at_least(value):
    with pytest.raises(OptionError, match="`stride` must be"):
        make_control("dilated", Sizes(8, 4), stride=value)


@pytest.mark.parametrize(
    "base, method", [(PositionControl, "phi"), (NormalisedControl, "log_alpha")]
)
def test_another_number_of_slots_than_declared(base, method):
    """What a strategy returns is checked in every form of the attention."""
    vectors = torch.zeros(2, 1, 5, 4)
    own = type("Own", (base,), {method: lambda self, *args: vectors})(Sizes(6, 3), ControlOptions())
    q, k, v = torch.randn(3, 2, 2, 5, 4)
    tokens = Tokens(torch.randn(2, 5, 6))
    message = rf"`{method}` of Own must return \(B, heads or 1, S, 3\), but returned \(2, 1, 5, 4\)"
    for call in (
        lambda: own.attend(q, k, v, tokens, causal=True),
        lambda: own.step(q, k, v, tokens, None),
        lambda: own.write(k, v, tokens),
        lambda: own.vectors(k, tokens),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("name", ["mlp", "linformer", "random"])
@pytest.mark.parametrize("heads", [1, 4])
def test_slots_begin_with_few_tokens(name, heads):
    """Slots that begin with mixtures of all tokens can hardly learn to hold single ones."""
    torch.manual_seed(1)
    sizes = Sizes(64, 8, heads=heads, attention_heads=4, head_dim=16, max_positions=64)
    control = make_control(name, sizes)
    x = torch.randn(16, 64, 64)
    phi = control.vectors(torch.randn(16, 4, 64, 16), Tokens(x)).abs()
    # By participation: n equal shares, and zeros, count as n tokens.
    tokens = phi.sum(2).square() / phi.square().sum(2)
    assert tokens.mean() < 16  # of 64


def test_linformer_begins_as_in_its_authors_code():
    """Each head's matrix, slots by positions, is Xavier's with a gain of 2 ** -0.5."""
    sizes = Sizes(64, 8, heads=2, attention_heads=2, head_dim=32, max_positions=64)
    weight = make_control("linformer", sizes, linformer_init="paper").weight
    expected = torch.nn.init.xavier_uniform_(torch.empty(8, 64), gain=2**-0.5)
    for head in weight.unbind(1):
        assert_close(head.abs().max(), expected.abs().max(), rtol=0.05, atol=0)
        assert_close(head.std(), expected.std(), rtol=0.1, atol=0)


def test_random_slots_can_be_drawn_at_each_step():
    sizes = Sizes(64, 8, heads=2, attention_heads=2, head_dim=32)
    control, table = (make_control("random", sizes, random_draw=d) for d in ("step", "position"))
    k, tokens = torch.zeros(50, 2, 40, 32), Tokens(torch.zeros(50, 40, 64))
    first, again = (control.vectors(k, tokens) for _ in range(2))
    for phi in (first, again):
        assert torch.equal(phi.sum(3), torch.ones(50, 2, 40))
        assert_close(phi.mean((0, 2)), torch.full((2, 8), 1 / 8), rtol=0, atol=0.03)
    assert (first * again).sum(3).mean() < 0.2  # and not the same slot
    assert not torch.equal(first[0], first[1])
    assert torch.equal(control.eval().vectors(k, tokens), table.vectors(k, tokens))
