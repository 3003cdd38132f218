"""The cache under the names of transformers before 5.24 and since."""

import inspect

import pytest
import torch
from transformers import GenerationMixin

from fairseq_memattn.transformers import (
    BoundedTransformerConfig,
    BoundedTransformerForCausalLM,
    GenBERTForConditionalGeneration,
    T5MemForConditionalGeneration,
)
from fairseq_memattn.transformers.arguments import CACHE
from fairseq_memattn.transformers.cache import MemoryCache
from fairseq_memattn.transformers.transformer_config import ControlConfig, StackConfig

SIZES = {"vocab_size": 12, "layers": 1, "embed_dim": 8, "ffn_dim": 12, "heads": 2}
SIZES |= {"input_dim": 8, "output_dim": 8}


@pytest.fixture(scope="module")
def model():
    stack = StackConfig(**SIZES, causal=ControlConfig("mlp", slots=4, heads=2))
    torch.manual_seed(1)
    model = BoundedTransformerForCausalLM(BoundedTransformerConfig(decoder_stack=stack))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2)  # so that the tokens of a greedy search differ
    return model.eval()


@torch.no_grad()
def test_either_name(model):
    tokens = torch.tensor([[4, 9, 5, 7]])
    expected = model(tokens).logits[:, 2:]
    for name in ("past_key_values", "cache"):
        cache = MemoryCache(model.config)
        model(tokens[:, :2], **{name: cache})
        torch.testing.assert_close(model(tokens[:, 2:], **{name: cache}).logits, expected)
    with pytest.raises(ValueError, match="only one of `cache` and `past_key_values`"):
        model(tokens, cache=cache, past_key_values=cache)


def test_the_name_is_the_one_that_generate_uses(model, monkeypatch):
    """A `generate` that passes the cache under another name loses it, and every token but one."""
    assert CACHE in inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters
    lengths, caches = [], set()
    decoder = type(model.decoder).forward

    def recorded(self, tokens, *args, cache=None, **kwargs):
        lengths.append(tokens.shape[1])
        caches.add(id(cache))
        return decoder(self, tokens, *args, cache=cache, **kwargs)

    monkeypatch.setattr(type(model.decoder), "forward", recorded)
    prompt, options = torch.tensor([[4, 9, 5]]), {"max_new_tokens": 6, "do_sample": False}
    options["min_new_tokens"] = 6
    found = model.generate(prompt, **options)
    assert lengths == [3, 1, 1, 1, 1, 1] and len(caches) == 1 and id(None) not in caches
    assert torch.equal(found, model.generate(prompt, **options, use_cache=False))


@pytest.mark.parametrize("cls", [T5MemForConditionalGeneration, GenBERTForConditionalGeneration])
def test_other_models_take_either_name(cls):
    assert "past_key_values" in inspect.signature(cls.forward).parameters
    with pytest.raises(ValueError, match="only one of `cache` and `past_key_values`"):
        cls.forward(None, cache=1, past_key_values=1)
