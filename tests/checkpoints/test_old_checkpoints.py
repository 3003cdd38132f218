"""Checkpoints of the first release load, compute what they did then, and are trained on."""

import logging

import pytest
import torch
from families import (
    FAMILIES,
    HERE,
    UPDATES,
    batch,
    checkpoint,
    data_of,
    expected,
    load,
    logits,
    optimised,
    search,
    train,
)
from full import others_in_full

import fairseq_memattn

fairseq_memattn.register()

SOME = ("abc_mlp_separate", "t5mem_v3", "gmat_bert")
each_family = pytest.mark.parametrize("name", FAMILIES)


@pytest.fixture
def unlogged():
    """fairseq-train sets up the logging of its process."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@each_family
def test_it_computes_what_it_did(name, tmp_path):
    model, task = load(checkpoint(name, tmp_path), HERE / data_of(name))
    then = expected(name)
    assert optimised(model) == then["parameters"]
    inputs = batch(task)
    assert inputs.keys() == then["inputs"].keys()
    for key, value in then["inputs"].items():
        torch.testing.assert_close(inputs[key], value, rtol=0, atol=0, msg=key)
    torch.testing.assert_close(logits(model, then["inputs"]), then["logits"], rtol=1e-4, atol=1e-5)
    model.double()  # write.py has seen to it that there are no near-ties
    for beam, tokens in then.get("tokens", {}).items():
        assert search(model, task, then["inputs"], beam) == tokens


@pytest.mark.parametrize("name", others_in_full(FAMILIES, SOME))
def test_it_is_trained_on(name, tmp_path, unlogged):
    """The optimiser's state belongs to the parameters that it was written for."""
    path = checkpoint(name, tmp_path)
    then = expected(name)
    before = torch.load(path, weights_only=False)
    assert before["optimizer_history"][-1]["num_updates"] == UPDATES
    state = before["last_optimizer_state"]["state"]
    for number, parameter in enumerate(then["parameters"]):
        assert state[number]["exp_avg"].shape == before["model"][parameter].shape, parameter
    train(name, HERE / data_of(name), tmp_path, UPDATES + 1)
    after = torch.load(path, weights_only=False)
    assert after["optimizer_history"][-1]["num_updates"] == UPDATES + 1
    assert after["model"].keys() == before["model"].keys()
    state = after["last_optimizer_state"]["state"]
    norms = [state[number]["exp_avg"].norm().item() for number in range(len(state))]
    if "first_moments" in then:
        assert norms == pytest.approx(then["first_moments"], rel=1e-3, abs=1e-5)
