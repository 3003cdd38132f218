"""GenBERT in transformers' format, without fairseq."""

import pytest
import torch
from test_gmat_models import TINY, TOKENS
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.transformers import GenBERTConfig, GenBERTForConditionalGeneration

TARGET = torch.tensor([[2, 7, 9, 4, 6, 5], [2, 8, 4, 10, 1, 1]])


@pytest.fixture
def model():
    torch.manual_seed(5)
    model = GenBERTForConditionalGeneration(GenBERTConfig(**TINY)).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return model


def generated(model, **options):
    torch.manual_seed(4)
    return model.generate(TOKENS, max_new_tokens=9, **options)


@torch.no_grad()
def test_all_forms_of_a_source(model):
    expected = model(TOKENS, decoder_input_ids=TARGET).logits
    mask = TOKENS.ne(1).long()
    embedded = model.get_input_embeddings()(TOKENS)
    out = model(inputs_embeds=embedded, attention_mask=mask, decoder_input_ids=TARGET)
    assert torch.equal(out.logits, expected)
    states = (model.get_encoder()(TOKENS).last_hidden_state,)
    out = model(encoder_outputs=states, attention_mask=mask, decoder_input_ids=TARGET)
    assert torch.equal(out.logits, expected)
    short = TOKENS[:1]
    states = (model.get_encoder()(short).last_hidden_state,)
    out = model(encoder_outputs=states, decoder_input_ids=TARGET[:1], return_dict=False)
    assert_close(out[0], expected[:1], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="`decoder_input_ids` or `labels` must be given"):
        model(TOKENS)


def test_training(model):
    labels = torch.tensor([[7, 9, 4, 6, 5, 2], [8, 4, 10, 2, -100, -100]])
    fed = torch.tensor([[2, 7, 9, 4, 6, 5], [2, 8, 4, 10, 2, 1]])
    logits = model(TOKENS, decoder_input_ids=fed).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    model.train()
    gradients = []
    for _ in range(2):
        model.zero_grad()
        out = model(TOKENS, labels=labels)
        assert_close(out.loss, expected)
        out.loss.backward()
        gradients.append([weight.grad.clone() for weight in model.parameters()])
        model.activation_checkpointing_enable()
    assert_close(*gradients, rtol=0, atol=1e-5)
    assert all(gradient.any() for gradient in gradients[0] if gradient.dim() > 1)


@torch.no_grad()
def test_hidden_states(model):
    out = model(TOKENS, decoder_input_ids=TARGET, output_hidden_states=True)
    assert len(out.encoder_hidden_states) == len(out.decoder_hidden_states) == 4
    assert_close(model.lm_head(out.decoder_hidden_states[-1]), out.logits)
    found = model.generate(
        TOKENS, max_new_tokens=2, output_hidden_states=True, return_dict_in_generate=True
    )
    assert len(found.encoder_hidden_states) == 4


def test_a_folder_holds_all(model, tmp_path):
    model.save_pretrained(tmp_path)
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert torch.equal(generated(again, num_beams=2), generated(model, num_beams=2))
    assert again.lm_head.decoder.weight is again.gmat.embed_tokens.weight


def test_options_that_cannot_be():
    with pytest.raises(MemAttnError, match="`sparsity` lsh has no key projection"):
        GenBERTConfig(sparsity="lsh")
    short = GenBERTForConditionalGeneration(GenBERTConfig(**TINY, max_position_embeddings=10))
    with pytest.raises(MemAttnError, match="at most 10 tokens .* but has 11"):
        short.generate(TOKENS, min_new_tokens=12, max_new_tokens=12)
    with pytest.raises(MemAttnError, match="from 1 to the 12 `num_hidden_layers`, but is 13"):
        GenBERTConfig(decoder_layers=13)
