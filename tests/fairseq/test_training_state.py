"""What holds for the models of every family: nothing of a training step is left in them."""

import copy
import weakref

import pytest
import torch
from tiny_models import TINY_MODELS


class Saved:
    """A tensor that the graph keeps for the backward pass."""

    def __init__(self, tensor):
        self.tensor = tensor


@pytest.mark.parametrize("name", TINY_MODELS)
def test_a_training_step_leaves_nothing_behind(name):
    build, net_input = TINY_MODELS[name]
    model, batch, kept = build().train(), net_input(), []
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def pack(tensor):
        # A result that is kept with its own graph would be a reference cycle.
        saved = Saved(tensor.detach())
        kept.append(weakref.ref(saved))
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        out = model(**batch)
        loss = out[0].square().mean()
    loss.backward(retain_graph=True)
    optimiser.step()
    assert any(reference() is not None for reference in kept)
    optimiser.zero_grad()
    del out, loss
    assert all(reference() is None for reference in kept)
    model.eval()
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(model)(**batch)[0], model(**batch)[0])
