"""`DocumentTranslator.from_pretrained` refuses folders of which some weights are not trained."""

import logging
import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_use_as_other_models import WORDS, translator

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.transformers.document_translator import DocumentTranslator
from fairseq_memattn.transformers.tokenizer import MemAttnTokenizer

TIED = {"share_all_embeddings": True, "share_decoder_embeddings": True}


@pytest.fixture(params=[{}, TIED], ids=["untied", "tied"])
def folder(request, tmp_path):
    translation = {"source_context": 0, "target_context": 0, "max_source": 9, "max_target": 9}
    translator(**request.param, translation=translation).save_pretrained(tmp_path)
    dictionary = tmp_path / "dict.source.txt"
    dictionary.write_text("".join(f"w{i} 1\n" for i in range(WORDS - 4)))
    MemAttnTokenizer(str(dictionary), pieces="words").save_pretrained(tmp_path)
    return tmp_path


def lacking(weights):
    """Without the last layer of the decoder."""
    return {name: w for name, w in weights.items() if not name.startswith("decoder.layers.1.")}


def other_names(weights):
    return weights | {"decoder.layers.2.fc1.bias": weights["decoder.layers.1.fc1.bias"].clone()}


def other_shapes(weights):
    return weights | {"decoder.layers.1.fc1.bias": torch.zeros(3)}


def with_value(value):
    def changed(weights):
        weights["decoder.layers.1.fc1.weight"][0, 0] = value
        return weights

    return changed


INFINITE = "weights have values that are infinite or NaN: `decoder.layers.1.fc1.weight`"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lacking, "weights are missing: `decoder.layers.1.encoder_attn.k_proj.bias` and 25 more"),
        (other_names, "weights are not the model's: `decoder.layers.2.fc1.bias`"),
        (other_shapes, "weights have another shape than the model's: `decoder.layers.1.fc1.bias`"),
        (with_value(torch.nan), INFINITE),
        (with_value(-torch.inf), INFINITE),
    ],
)
def test_weights_that_are_not_trained(change, expected, folder, caplog):
    file = folder / "model.safetensors"
    assert DocumentTranslator.from_pretrained(folder).translate([["w1 w2"]], max_len_b=3)
    save_file(change(load_file(file)), file, metadata={"format": "pt"})
    with pytest.raises(MemAttnError, match=f"^{re.escape(f'{folder}: {expected}')}$"):
        DocumentTranslator.from_pretrained(folder)
    assert "LOAD REPORT" not in caplog.text


def test_nothing_is_logged(folder):
    """Neither of layers that are not sharded, nor a table of weights that are missing."""
    said = []
    handler = logging.Handler()
    handler.emit = said.append
    log = logging.getLogger("transformers")
    log.addHandler(handler)
    try:
        DocumentTranslator.from_pretrained(folder)
        path = folder / "model.safetensors"
        save_file(lacking(load_file(path)), path, {"format": "pt"})
        with pytest.raises(MemAttnError, match="weights are missing"):
            DocumentTranslator.from_pretrained(folder)
    finally:
        log.removeHandler(handler)
    assert [record.getMessage() for record in said] == []
