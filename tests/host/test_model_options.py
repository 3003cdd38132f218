"""Options of a model in a YAML file, of which fairseq checks none if the model has no dataclass."""

from argparse import Namespace

import pytest
from omegaconf import OmegaConf

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.correctness.options import forget_embedding_files
from fairseq_memattn.host.correctness.trained_options import check_model_options


def configuration(name, **options):
    return OmegaConf.create({"task": {"data": "bin"}, "model": {"_name": name, **options}})


@pytest.mark.parametrize("name", ["abc_mlp_transformer", "gmat_transformer"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"encoder_layer": 3}, "model.encoder_layer is no option of NAME; the most similar are en"),
        ({"encoder_layers": "six"}, "--encoder-layers must be a number, but is 'six'"),
        ({"dropout": "much"}, "--dropout must be a number, but is 'much'"),
    ],
)
def test_refused(name, options, words):
    with pytest.raises(MemAttnError) as info:
        check_model_options(configuration(name, **options))
    assert str(info.value).startswith(words.replace("NAME", name))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("abc_mlp_transformer", {"abc_cross_slots": None, "data": "bin", "dropout": 0}),
        ("gmat_transformer", {"encoder_embed_dim": 8, "gmat_window": 3}),
        ("t5mem_v1", {"encoder_layers": None, "t5mem_slots": 3}),
    ],
)
def test_accepted(name, options):
    check_model_options(configuration(name, **options))


def test_embeddings_are_not_read_again():
    """Neither by an architecture without a dataclass nor by one with a part for each side."""

    def load(path, **options):
        return {"cfg": cfgs[path]}

    stack = OmegaConf.create({"model": {"encoder": {"embed_path": "gone.vec"}, "dropout": 0.1}})
    OmegaConf.set_struct(stack, True)
    old = Namespace(encoder_embed_path="gone.vec", decoder_embed_path="gone.vec", dropout=0.1)
    cfgs = {"old.pt": {"model": old}, "stack.pt": stack, "none.pt": None}
    forget_embedding_files(load, "old.pt")
    assert vars(old) == {"encoder_embed_path": None, "decoder_embed_path": None, "dropout": 0.1}
    forget_embedding_files(load, "stack.pt")
    assert stack.model == {"encoder": {"embed_path": None}, "dropout": 0.1}
    assert forget_embedding_files(load, "none.pt") == {"cfg": None}
