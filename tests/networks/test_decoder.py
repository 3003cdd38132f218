"""The decoder: steps, padding and beams against whole sequences, and what its sizes refuse."""

import pytest
import torch
from torch.testing import assert_close

from fairseq_memattn.attention.nn import Rotary
from fairseq_memattn.networks import DecoderLM, DecoderSizes

TINY = {"vocab_size": 20, "embed_dim": 16, "ffn_dim": 24, "layers": 3, "heads": 4, "kv_heads": 2}
LAYERS = {
    "softmax": ("softmax",),
    "windows and softmax": ({"control": "window", "slots": 5}, "softmax"),
    "sinks": ({"control": "sinks", "slots": 6}, {"control": "local_mlp", "slots": 7}),
    "local and global": (
        {"control": "local_global", "slots": 6, "local_window": 4, "global_positions": [0, 1]},
    ),
    "learned": (
        {"control": "mlp", "slots": 3},
        {"control": "gated", "slots": 4, "rotary": False},
        {"control": "elu", "slots": 4},
    ),
}
each_kind = pytest.mark.parametrize("kind", LAYERS)


def build(kind, **sizes):
    torch.manual_seed(2)
    given = {"controls": LAYERS[kind], "deviation": 0.3, "qkv_bias": True, "qk_norm": True}
    return DecoderLM(DecoderSizes(**TINY | given | sizes)).double().eval()


def rows(length=11):
    torch.manual_seed(1)
    return torch.randint(0, 20, (2, length))


@each_kind
def test_steps_continue_whole_sequences_and_states_reorder(kind):
    model, tokens = build(kind), rows()
    whole = model(tokens)
    out, state = model.step(tokens[:, :6])
    assert_close(out, whole[:, :6])
    swapped = torch.tensor([1, 0])
    state = state.reorder(swapped)
    for at in range(6, 11):
        out, state = model.step(tokens[swapped, at : at + 1], state)
        assert_close(out, whole[swapped, at : at + 1])
    assert state.read.tolist() == [11, 11]


@each_kind
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(kind, side):
    model, tokens = build(kind), rows()
    whole = model(tokens)
    padded = torch.cat([tokens, tokens[:, :3]], dim=1)
    mask = torch.zeros_like(padded, dtype=torch.bool)
    mask[:, 11:] = True
    if side == "left":
        padded, mask = padded.roll(3, dims=1), mask.roll(3, dims=1)
    assert_close(model(padded, mask)[~mask], whole.flatten(0, 1))
    out, state = model.step(padded[:, :5], None, mask[:, :5])
    rest, state = model.step(padded[:, 5:], state, mask[:, 5:])
    assert_close(torch.cat([out, rest], dim=1)[~mask], whole.flatten(0, 1))
    assert state.read.tolist() == [11, 11]


def test_a_step_computes_the_angles_once(monkeypatch):
    model, counted = build("windows and softmax"), []
    rotation = Rotary.rotation
    monkeypatch.setattr(Rotary, "rotation", lambda *args: counted.append(1) or rotation(*args))
    model.step(rows()[:, :1], model.step(rows())[1])
    assert len(counted) == 2


def test_gradients_of_steps_are_those_of_whole_sequences():
    model, tokens = build("windows and softmax"), rows()
    results = []
    first, state = model.step(tokens[:, :4])
    stepped = torch.cat([first, model.step(tokens[:, 4:], state)[0]], dim=1)
    for logits in (model(tokens), stepped):
        loss = logits.log_softmax(-1)[..., 0].sum()
        results.append(torch.autograd.grad(loss, list(model.parameters())))
    assert_close(*results)


def test_layers_have_their_controls_in_turn():
    model = build("learned", layers=5)
    kinds = [type(layer.self_attn.control).__name__ for layer in model.model.layers]
    assert kinds == ["MLPControl", "GatedControl", "ELUControl", "MLPControl", "GatedControl"]
    assert model.model.layers[1].self_attn.rotary is None
    assert model.lm_head.weight is model.model.embed_tokens.weight


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"layers": 0}, "`layers` must be at least 1"),
        ({"controls": ()}, "`controls` must name"),
        ({"controls": ({"slots": 4},)}, "`controls` must have 'softmax' or"),
        ({"controls": ("window",)}, "`controls` must have 'softmax' or"),
    ],
)
def test_sizes_out_of_range(wrong, message):
    with pytest.raises(ValueError, match=message):
        DecoderSizes(**TINY | wrong)
