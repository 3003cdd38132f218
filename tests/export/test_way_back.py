"""Where an exported folder keeps the weights of fairseq."""

from types import SimpleNamespace

import pytest
import test_gmat
import torch
from tiny_models import TINY_MODELS

from fairseq_memattn import register
from fairseq_memattn.export import way_back
from fairseq_memattn.export.converters import converted

register()
WORDS = test_gmat.WORDBOOK
TASK = SimpleNamespace(source_dictionary=WORDS, target_dictionary=WORDS, args=SimpleNamespace())


@pytest.mark.parametrize(
    "name", ["abc_random_transformer", "rfa_transformer", "t5", "t5mem_v3", "abc_llama"]
)
def test_every_parameter_is_read_from_the_weights(name):
    """Small ones, which training changes too, and tables of integers."""
    torch.manual_seed(1)
    model = TINY_MODELS[name].build().float()
    new = converted(model, TASK)
    saved = new.state_dict()
    names, constants, lost = way_back.weight_names(model, TASK, set(saved))
    assert not lost
    assert not constants.keys() & dict(model.named_parameters()).keys()
    with torch.no_grad():
        for weight in new.parameters():
            weight += 1
    content = {"names": names, "constants": constants}
    again = way_back.restored(content, new.state_dict())
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for key, weight in model.state_dict().items():
        expected = weight + 1 if key in parameters else weight
        assert torch.equal(again[key], expected), key
