"""GMAT's models in transformers' format against fairseq's."""

from types import SimpleNamespace

import pytest
import torch
from test_gmat import KINDS, MASKABLE, PAD, bert, rows
from torch.testing import assert_close
from transformers import AutoModelForMaskedLM

import fairseq_memattn.export.gmat  # noqa: F401 (registers the converters)
from fairseq_memattn.export.converters import converted

TASK = SimpleNamespace(source_dictionary=MASKABLE, target_dictionary=MASKABLE)
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
@torch.no_grad()
def test_masked_words(kind, tmp_path):
    theirs = bert(kind, words=MASKABLE)
    ours = converted(theirs, TASK)
    ours.save_pretrained(tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    for left in (False, True):
        tokens = rows(11, 6, 3, left=left)
        real = tokens.ne(PAD)
        expected, extra = theirs(tokens, return_all_hiddens=True)
        out = ours(tokens, output_hidden_states=True)
        assert_close(out.logits[real], expected[real], rtol=0, atol=1e-5)
        assert torch.equal(again(tokens, real.long()).logits[real], out.logits[real])
