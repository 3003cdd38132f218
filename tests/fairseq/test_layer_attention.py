"""`--abc-causal-layers`: another attention in each layer of a decoder."""

import pytest
import torch
from fairseq.modules import MultiheadAttention
from test_modules import PAD, language_model, prefix, step_by_step, translator

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export.transformer_converter import _control
from fairseq_memattn.modules.layer_attention import LayerAttention, attention_of_layers


def layers(model) -> list[str]:
    found = []
    for layer in model.decoder.layers:
        attention = layer.self_attn
        if isinstance(attention, MultiheadAttention):
            found.append("softmax")
        else:
            found.append(f"{type(attention.control).__name__} {attention.control.slots}")
    return found


def test_entries():
    found = attention_of_layers("window:8, mlp,softmax,rfa:4")
    assert found == [
        LayerAttention("window", 8),
        LayerAttention("mlp", None),
        LayerAttention(None, 0),
        LayerAttention("rfa", 4),
    ]


def test_the_list_begins_again_and_equal_layers_share_a_control():
    model = language_model(abc_causal_layers="mlp:4,window:2,softmax", decoder_layers=6)
    assert layers(model) == ["MLPControl 4", "WindowControl 2", "softmax"] * 2
    attentions = [layer.self_attn for layer in model.decoder.layers]
    assert attentions[0].control is attentions[3].control
    options = {"abc_causal_layers": "mlp:4,mlp:5,mlp:4", "decoder_layers": 3}
    assert len(language_model(**options).decoder.causal_controls) == 2
    assert len(language_model(**options, abc_phi_layers="separate").decoder.causal_controls) == 3


@pytest.mark.parametrize("build", [translator, language_model])
def test_equal_layers_are_the_model_without_the_flag(build):
    plain, given = build(), build(abc_causal_slots=1, abc_causal_layers="mlp:3")
    given.load_state_dict(plain.state_dict())
    if build is language_model:
        assert torch.equal(plain(prefix())[0], given(prefix())[0])


def test_softmax_layers_do_not_see_later_tokens():
    model = language_model(abc_causal_layers="softmax,window:2")
    tokens = prefix()
    changed = tokens.clone()
    changed[:, 5:] = changed[:, 5:].flip(1)
    with torch.no_grad():
        first, second = model(tokens)[0], model(changed)[0]
        steps, _ = step_by_step(model.decoder, tokens)
    assert torch.equal(first[:, :5], second[:, :5])
    assert not torch.equal(first[:, 5:], second[:, 5:])
    torch.testing.assert_close(steps, first, rtol=1e-4, atol=1e-5)


def test_softmax_layers_learn_with_padding():
    """The mask of softmax layers and the padding mask together: no NaN, and no gradient of pads."""
    model = language_model(abc_causal_layers="window:2,softmax")
    tokens = prefix()
    tokens[0, 6:] = PAD
    logits = model(tokens)[0]
    logits[tokens.ne(PAD)].square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    alone = model(tokens[:1, :6])[0]
    torch.testing.assert_close(logits[:1, :6], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"abc_causal_layers": "mlp:4,soft"}, "where CONTROL is one of .*; but it has 'soft'"),
        ({"abc_causal_layers": "mlp:0,mlp"}, "numbers of slots from 1 to 1048576, but has 'mlp:0'"),
        ({"abc_causal_layers": "mlp,mlp,mlp"}, "but it has 3 for 2 layers"),
    ],
)
def test_layers_that_cannot_be(options, message):
    with pytest.raises(MemAttnError, match=message):
        language_model(**options)


def test_what_needs_one_control():
    model = language_model(abc_causal_layers="window:2,softmax")
    with pytest.raises(MemAttnError, match="needs a bounded memory in every layer"):
        model.decoder.read_on(prefix(), {})
    with pytest.raises(MemAttnError, match="with --abc-causal-layers cannot be exported"):
        _control(model.decoder.causal_controls)
