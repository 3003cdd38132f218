"""A folder with its own source files, which nothing of this package reads."""

import ast
import json
import sys

import abc_models
import pytest
import test_gmat
import torch
from test_transformer_converter import TASK
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from fairseq_memattn.attention.controls import CONTROLS, Sizes
from fairseq_memattn.attention.controls.mlp import MLPControl
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export.converters import converted
from fairseq_memattn.export.self_contained import controls_of, write_sources
from fairseq_memattn.transformers.pieces import WORDS
from fairseq_memattn.transformers.tokenizer import MemAttnTokenizer
from fairseq_memattn.transformers.vocabulary import SPECIAL, Vocabulary

MODELS = {"abc_local_global_transformer": AutoModelForSeq2SeqLM, "gmat_bert": AutoModelForMaskedLM}


@pytest.fixture(scope="module", autouse=True)
def copies(tmp_path_factory):
    """Where transformers copies the files to."""
    folder = tmp_path_factory.mktemp("copies")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(folder))
        patch.syspath_prepend(folder)
        yield
        for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
            del sys.modules[name]


def own_class(folder, file, auto_class):
    place = json.loads((folder / file).read_text("utf-8"))["auto_map"][auto_class]
    place = place[0] if isinstance(place, list) else place
    found = get_class_from_dynamic_module(place, folder)
    assert found.__module__.startswith("transformers_modules.")
    return found


@pytest.mark.parametrize("arch", MODELS)
def test_a_folder_that_needs_no_package(arch, tmp_path):
    is_bert = arch == "gmat_bert"
    given = test_gmat.bert("window") if is_bert else abc_models.translator(arch)
    model = converted(given, TASK)
    folder = tmp_path / arch
    model.save_pretrained(folder)
    Vocabulary([*SPECIAL, "a"], list(range(5))).save(tmp_path / "dict.txt")
    tokenizer = MemAttnTokenizer(str(tmp_path / "dict.txt"), pieces=WORDS)
    tokenizer.save_pretrained(folder)
    write_sources(folder, model, tokenizer)

    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                assert not str(node.module).startswith("fairseq"), path
    # The Auto classes take the registered classes of this package where there are any.
    loaded = own_class(folder, "config.json", MODELS[arch].__name__).from_pretrained(folder)
    tokens = test_gmat.rows(9, 5)
    inputs = {"input_ids": tokens} | ({} if is_bert else {"decoder_input_ids": tokens})
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)
    words = own_class(folder, "tokenizer_config.json", "AutoTokenizer").from_pretrained(folder)
    assert words("a b").input_ids == tokenizer("a b").input_ids


def test_a_control_from_outside(monkeypatch):
    class Own(MLPControl):
        __module__ = "my_controls"

    monkeypatch.setitem(CONTROLS, "own", Own)
    model = torch.nn.ModuleList([Own(Sizes(embed_dim=4, slots=2), Own.Options())])
    with pytest.raises(MemAttnError, match="but the model has one of my_controls"):
        controls_of(model)
