"""Every control strategy: its full, causal and stepwise forms are the recurrences of Table 1."""

import re
from pathlib import Path

import pytest
import torch
from cases import Case, Inputs, draw, shapes_of_tokens
from recurrences import GLOBAL, LONGEST, STRIDE, B, D, H, M
from torch.testing import assert_close

import fairseq_memattn
from fairseq_memattn.attention.controls import (
    CONTROLS,
    Sizes,
    Tokens,
    make_control,
    registry,
)
from fairseq_memattn.attention.controls.options import option_fields
from fairseq_memattn.attention.nn import ABCAttention

E = 6
SIZES = dict(embed_dim=E, slots=M, heads=H, attention_heads=H, head_dim=D, max_positions=LONGEST)
LENGTH = 11

CAUSAL = [name for name, control in CONTROLS.items() if not control.causal_refusal]
causal_ones = pytest.mark.parametrize("name", CAUSAL)


def make(name: str, **options):
    torch.manual_seed(3)
    if name == "local_global":
        options = {"slots": 4, "global_positions": GLOBAL, **options}
    if "stride" in option_fields(CONTROLS[name].Options):
        options = {"stride": STRIDE, **options}
    sizes = {key: options.pop(key, value) for key, value in SIZES.items()}
    sizes["kind"] = options.pop("kind", "cross")
    return make_control(name, Sizes(**sizes), **options).double()


def inputs(length=LENGTH) -> Inputs:
    """q, k and v (B, H, S, D), and x (B, S, E), in float64."""
    tokens = shapes_of_tokens(Case(length, batch=B, heads=H, width=D))
    return draw(1, **tokens, x=(B, length, E)).to(torch.float64)


def attend(control, q, k, v, x, mask=None, **options):
    return control.attend(q, k, v, Tokens(x, mask), **options)


@causal_ones
def test_dropout_leaves_out_writes(name):
    control, tensors = make(name), inputs()
    out = attend(control, *tensors, causal=True, dropout=0.0)
    dropped = attend(control, *tensors, causal=True, dropout=0.5)
    assert dropped.isfinite().all() and not torch.equal(out, dropped)
    assert not attend(control, *tensors, causal=True, dropout=1.0).any()


@pytest.mark.parametrize("name", ["linformer", "random", "compressive"])
def test_dropout_keeps_the_mean_of_a_memory_that_is_a_sum(name):
    """Where keys do not tell slots apart, the output is linear in the control vectors."""
    torch.manual_seed(1)
    k = torch.zeros(2000, H, LENGTH, D).double()
    out, dropped = (
        attend(make(name, slots=2), k, k, k + 1, k[:, 0], causal=False, dropout=p)
        for p in (0.0, 0.2)
    )
    assert_close(dropped.mean(dim=0), out[0], rtol=0.05, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [True, False])
def test_autocast_moves_no_key_to_another_cluster(causal, dtype):
    """Far from the origin, distances in half precision are rounding errors alone."""
    control = make("clustering", slots=8).float()
    torch.manual_seed(1)
    q, k, v = ((torch.randn(2, H, 64, D) + shift).to(dtype) for shift in (0, 10, 0))
    x = torch.zeros(2, 64, E)
    expected = attend(control, q, k, v, x, causal=causal)
    with torch.autocast("cpu", dtype=dtype):
        assert torch.equal(attend(control, q, k, v, x, causal=causal), expected)


def test_the_strategy_that_the_documentation_makes(monkeypatch):
    """docs/controls.md: with a slot for every token, slots in turn are softmax attention."""
    monkeypatch.setattr(registry, "CONTROLS", dict(CONTROLS))
    monkeypatch.setattr(registry, "_observers", [])
    monkeypatch.setattr(fairseq_memattn, "register", lambda: None)
    text = (Path(__file__).parents[2] / "docs" / "controls.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(code, {"__name__": "my_controls"})
    sizes = Sizes(**{**SIZES, "slots": LENGTH})
    control = make_control("in_turn", sizes, turns=1).double()
    with pytest.raises(ValueError, match="`turns` must be at least 1, but is 0"):
        make_control("in_turn", sizes, turns=0)
    q, k, v, x = inputs()
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_close(attend(control, q, k, v, x, causal=True), expected)
    first, state = control.step(q[:, :, :1], k[:, :, :1], v[:, :, :1], Tokens(x[:, :1]), None)
    rest, _ = control.step(q[:, :, 1:], k[:, :, 1:], v[:, :, 1:], Tokens(x[:, 1:]), state)
    assert_close(torch.cat([first, rest], dim=2), expected)


@pytest.mark.parametrize("name", ["linformer", "compressive", "global"])
def test_positions_past_the_limit_are_refused(name):
    limit = make(name).max_length
    q, k, v, x = inputs(limit + 1)
    with pytest.raises(ValueError, match=rf"up to {limit} tokens .*, but there are {limit + 1}"):
        attend(make(name), q, k, v, x, causal=True)
    state = None
    with pytest.raises(ValueError, match=f"but there are {limit + 1}"):
        for t in range(limit + 1):
            at = slice(t, t + 1)
            _, state = make(name).step(
                q[:, :, at], k[:, :, at], v[:, :, at], Tokens(x[:, at]), state
            )


def test_global_tokens_by_position():
    control = make("global", global_positions=(1, 5))
    q, k, v, x = inputs()
    chosen = torch.tensor([1, 5])
    expected = torch.nn.functional.scaled_dot_product_attention(q, k[:, :, chosen], v[:, :, chosen])
    assert_close(attend(control, q, k, v, x, causal=False), expected)


def test_random_slots_are_spread_and_the_seed_s():
    table = make("random", slots=8).table
    assert torch.equal(table, make("random", slots=8).table)
    assert not torch.equal(table, make("random", slots=8, random_seed=2).table)
    counts = torch.bincount(table.flatten(), minlength=8) / table.numel()
    assert_close(counts, torch.full((8,), 1 / 8), atol=3e-3, rtol=0)


def test_gates_forget_within_the_horizon():
    layer = ABCAttention(8, 2, slots=5, control="gated", causal=True, gate_horizon=81)
    log_gates = layer.control.gates(torch.zeros(1, 1, 8))[0, :, 0]
    assert_close(-1 / log_gates, torch.tensor([1.0, 3.0, 9.0, 27.0, 81.0]).expand(2, 5))


def test_k_means_groups_what_lies_together():
    """Three heaps of keys, wherever they stand in the sequence."""
    heaps = torch.tensor([[5.0, 0], [-5, 5], [-5, -5]])
    member = torch.tensor([0, 1, 2, 0, 0, 2, 1, 1, 0, 2, 2])
    torch.manual_seed(1)
    k = (heaps[member] + 0.1 * torch.randn(LENGTH, 2)).double()[None, None]
    control = make("clustering", heads=1)
    phi = control.vectors(k, Tokens(torch.zeros(1, LENGTH, E)))[0, 0]
    for heap in range(3):
        (slot,) = phi[member == heap].argmax(1).unique().tolist()
        assert_close(phi[:, slot], (member == heap).double() / (member == heap).sum())
