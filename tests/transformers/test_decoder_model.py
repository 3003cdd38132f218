"""The decoder in transformers' format, as one of transformers' own.

test_conversion.py compares it with transformers' decoders.
"""

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from fairseq_memattn.transformers import BoundedDecoderConfig
from fairseq_memattn.transformers.cache import MemoryCache

SIZES = {
    **{"vocab_size": 50, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128},
}


def tokens(rows=2, length=21):
    torch.manual_seed(4)
    return torch.randint(0, 50, (rows, length))


def build(controls=None, **options):
    torch.manual_seed(1)
    config = BoundedDecoderConfig(**SIZES | {"controls": controls, "initializer_range": 0.3})
    config.update(options)
    return AutoModelForCausalLM.from_config(config).eval()


@torch.no_grad()
def test_layers_of_softmax_beside_bounded_ones_share_a_cache(tmp_path):
    model, ids = build([{"control": "window", "slots": 4}, "softmax"]), tokens()
    whole = model(ids).logits
    cache = MemoryCache(model.config)
    parts = [model(ids[:, at : at + 7], past_key_values=cache).logits for at in (0, 7)]
    torch.save(cache.state_dict(), tmp_path / "cache.pt")
    again = MemoryCache(model.config)
    again.load_state_dict(torch.load(tmp_path / "cache.pt"))
    parts.append(model(ids[:, 14:], past_key_values=again).logits)
    assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=0)
    sizes = [layer.state[0].shape[2] for layer in again.layers]
    assert sizes == [4, 21, 4]


@torch.no_grad()
def test_without_further_settings_it_generates_saves_and_loads(tmp_path):
    model, ids = build(), tokens()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert AutoConfig.from_pretrained(tmp_path).controls == loaded.config.controls
    out = loaded.generate(ids, max_new_tokens=5, do_sample=False)
    states = AutoModel.from_pretrained(tmp_path)(out).last_hidden_state
    assert torch.equal(loaded.lm_head(states).argmax(-1)[:, 20:-1], out[:, 21:])


@torch.no_grad()
def test_what_programs_ask_of_decoders():
    model, ids = build(), tokens()
    whole = model(ids, output_hidden_states=True)
    assert len(whole.hidden_states) == 4
    vectors = model.get_input_embeddings()(ids)
    assert torch.equal(model(inputs_embeds=vectors).logits, whole.logits)
    assert torch.equal(model(ids, logits_to_keep=2).logits, whole.logits[:, -2:])
    places = torch.arange(21).expand(2, -1)
    assert torch.equal(model(ids, position_ids=places).logits, whole.logits)
    assert not torch.allclose(model(ids, position_ids=3 * places).logits, whole.logits)
    greedy = {"max_new_tokens": 4, "do_sample": False}
    assert torch.equal(
        model.generate(inputs_embeds=vectors, **greedy), model.generate(ids, **greedy)[:, 21:]
    )
    model.resize_token_embeddings(53)
    assert model(ids).logits.shape == (2, 21, 53)
    assert torch.equal(model(ids).logits[..., :50], whole.logits)
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_losses_and_gradients_with_checkpoints():
    model, ids = build(["softmax", {"control": "gated", "slots": 3}]).train(), tokens()
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    results = []
    for _ in range(2):
        loss = model(ids, attention_mask=mask, labels=ids).loss
        results.append(torch.autograd.grad(loss, list(model.parameters())))
        model.gradient_checkpointing_enable()
    assert_close(*results)
    logits = model(ids, attention_mask=mask).logits
    kept = mask[:, :-1].bool()
    expected = torch.nn.functional.cross_entropy(logits[:, :-1][kept], ids[:, 1:][kept])
    assert_close(loss, expected)
    with pytest.raises(ValueError, match="must be left out in training with gradient"):
        model(ids, use_cache=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one of `input_ids` and `inputs_embeds` must be given"),
        (
            {"input_ids": tokens(), "attention_mask": torch.ones(2, 1, 21, 21)},
            r"`attention_mask` must be \(B, T\), with 0 at padding, but is \(2, 1, 21, 21\)",
        ),
    ],
)
def test_inputs_that_do_not_fit(given, message):
    with pytest.raises(ValueError, match=message):
        build()(**given)
    with pytest.raises(ValueError, match="`control` must be one of .* but is 'mpl'"):
        build([{"control": "mpl", "slots": 4}])
    with pytest.raises(ValueError, match="`rope_theta` is no field here; `rotary_base` has its"):
        BoundedDecoderConfig(rope_theta=500000.0)
