"""Bounded transformers in replicas of `nn.DataParallel`, and divided among devices."""

import copy

import pytest
import torch
from accelerate import infer_auto_device_map
from accelerate.utils import compute_module_sizes
from test_use_as_other_models import CONTROLS, control, language_model, rows, translator
from torch.testing import assert_close

FACTOR = 1.25  # other weights stand for another device


def replica(model):
    """What `torch.nn.parallel.replicate` makes."""
    replicas = {module: module._replicate_for_data_parallel() for module in model.modules()}
    for module, made in replicas.items():
        for name, child in module._modules.items():
            made._modules[name] = None if child is None else replicas[child]
        for name, weight in (*module._parameters.items(), *module._buffers.items()):
            of_floats = weight is not None and weight.is_floating_point()
            setattr(made, name, FACTOR * weight if of_floats else weight)
    return replicas[model]


def case(name):
    if name == "cross":
        return translator(), {"input_ids": rows(7, 5), "labels": rows(6, 4, seed=3)}
    chosen = control(name) | ({"options": {"stride": 4}} if name == "global" else {})
    return language_model(chosen), {"input_ids": rows(7, 5), "labels": rows(7, 5)}


@pytest.mark.parametrize("name", ["cross", *CONTROLS])
def test_a_replica_computes_with_its_own_controls(name):
    model, given = case(name)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in (*other.parameters(), *other.buffers()):
            if weight.is_floating_point():
                weight *= FACTOR
    expected, found = other(**given), replica(model)(**given)
    assert_close(found.logits, expected.logits)
    for out in (expected, found):
        out.loss.backward()
    for weight, same in zip(model.parameters(), other.parameters(), strict=True):
        assert (weight.grad is None) == (same.grad is None)
        if weight.grad is not None:
            assert_close(weight.grad, FACTOR * same.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_a_stack_stays_on_one_device(tied):
    model = translator(share_all_embeddings=tied, share_decoder_embeddings=tied)
    sizes = compute_module_sizes(model)
    for part in (0.3, 0.6, 0.9):
        found = infer_auto_device_map(
            model,
            max_memory={"cpu": int(part * sizes[""])},
            no_split_module_classes=list(model._no_split_modules),
        )
        assert found.keys() <= {"", "encoder", "decoder", "lm_head"}
