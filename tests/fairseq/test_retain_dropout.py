"""--retain-dropout keeps dropout in all models, also that of attention alone."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.modules import FairseqDropout
from full import full
from tiny_models import TINY_MODELS

from fairseq_memattn.attention.nn.dropout import AttentionDropout


def prepared(name, modules=None, *, attention=0.5, other=0.0):
    model, net_input = TINY_MODELS[name].build(), TINY_MODELS[name].net_input()
    for part in model.modules():
        if isinstance(part, AttentionDropout):
            part.dropout = attention
        elif isinstance(part, FairseqDropout):
            part.p = other
    options = SimpleNamespace(retain_dropout=True, retain_dropout_modules=modules)
    model.prepare_for_inference_(SimpleNamespace(generation=options))
    model.eval()  # of which fairseq makes a function without a result
    return model, net_input


def logits(model, net_input, seed=1):
    torch.manual_seed(seed)
    with torch.no_grad():
        return model(**net_input)[0]


FEW = ("gmat_bert, chunks", "t5", "t5mem_v3", "rfa_transformer", "abc_mlp_transformer_lm")


@pytest.mark.parametrize("name", [x if x in FEW else full(x) for x in TINY_MODELS])
def test_each_rate_counts(name):
    for rates in ({}, {"attention": 0.0, "other": 0.5}):
        model, net_input = prepared(name, **rates)
        assert not logits(model, net_input).equal(logits(model, net_input, seed=2))
        assert logits(model, net_input).equal(logits(model, net_input))


def test_modules_by_name():
    for names, drops in ((["ABCAttention"], True), (["TransformerDecoder"], False)):
        model, net_input = prepared("abc_mlp_transformer", names)
        assert logits(model, net_input).equal(logits(model, net_input, seed=2)) != drops


def steps(model, net_input, seed=1):
    torch.manual_seed(seed)
    inputs, state, found = dict(net_input), {}, []
    target = inputs.pop("prev_output_tokens")
    with torch.no_grad():
        encoded = model.encoder(**inputs)
        for length in range(1, target.shape[1] + 1):
            found.append(model.decoder(target[:, :length], encoded, incremental_state=state)[0])
            order = torch.arange(len(target)).flip(0).flip(0)
            model.decoder.reorder_incremental_state_scripting(state, order)
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("name", ["t5", "t5mem_v3", "abc_mlp_transformer"])
def test_decoding_by_steps(name):
    """It drops too, and with a rate of nearly 0 gives what decoding without dropout gives."""
    model, net_input = prepared(name)
    assert not steps(model, net_input).equal(steps(model, net_input, seed=2))
    model, _ = prepared(name, attention=1e-12)
    found = steps(model, net_input)
    for part in model.modules():
        if isinstance(part, AttentionDropout):
            part.keeps_dropout = False
    torch.testing.assert_close(found, steps(model, net_input))
