"""GMAT's models in transformers' format against fairseq's."""

from types import SimpleNamespace

import pytest
import torch
from test_gmat import KINDS, MASKABLE, PAD, SMALL, bert, build, rows, shaken
from torch.testing import assert_close
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForTokenClassification,
)

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export.converters import converted
from fairseq_memattn.modules.span_head import SpanHead
from fairseq_memattn.tasks.majority_tagging import MajorityTaggingConfig, MajorityTaggingTask
from fairseq_memattn.tasks.span_answering import SpanAnsweringConfig, SpanAnsweringTask

TASK = SimpleNamespace(source_dictionary=MASKABLE, target_dictionary=MASKABLE)
BATCHES = (rows(11, 6, 3), rows(11, 6, 3, left=True), rows(5), rows(1, 9))
# Options of fairseq that change no weights of the attention, and some that GMAT's paper does not
# have.
OTHERS = {
    "norm before": {"encoder_normalize_before": True},
    "no positions": {"no_token_positional_embeddings": True},
    "blocks of 4": {"gmat_position_block": 4},
    "positions that repeat": {"gmat_position_block": 4, "gmat_positions": "r"},
    "an epsilon": {"gmat_layer_norm_eps": 1e-2},
    "another activation": {"activation_fn": "gelu_accurate"},
    "head of its own": {"untie_weights_roberta": True},
    "sinusoidal": {"encoder_learned_pos": False},
}


def saved(folder, model, auto_class):
    """The model as an Auto class loads it again."""
    model.save_pretrained(folder)
    again, report = auto_class.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return again


@pytest.mark.parametrize("kind", ["lsh", "untied", "compressed more", "positioned", *OTHERS])
@torch.no_grad()
def test_masked_words(kind, tmp_path):
    options = {"kind": kind} if kind in KINDS else OTHERS[kind]
    theirs = bert(words=MASKABLE, **options)
    ours = converted(theirs, TASK)
    again = saved(tmp_path, ours, AutoModelForMaskedLM)
    for tokens in BATCHES:
        real = tokens.ne(PAD)
        expected, extra = theirs(tokens, return_all_hiddens=True)
        out = ours(tokens, output_hidden_states=True)
        assert_close(out.logits[real], expected[real], rtol=0, atol=1e-5)
        assert torch.equal(again(tokens, attention_mask=real).logits[real], out.logits[real])
        # The last is fairseq's before the final norm, and transformers' after it.
        inner_states = extra["inner_states"][:-1]
        for state, inner in zip(out.hidden_states[:-1], inner_states, strict=True):
            assert_close(state[real], inner.transpose(0, 1)[real], rtol=0, atol=1e-5)
        assert_close(ours.gmat(tokens).memory, extra["memory"], rtol=0, atol=1e-5)


@torch.no_grad()
def test_tags(tmp_path):
    task = MajorityTaggingTask(MajorityTaggingConfig(length=9, pairs=2))
    theirs = bert("lsh", words=task.source_dictionary)
    ours = saved(tmp_path, converted(theirs, task), AutoModelForTokenClassification)
    tokens = torch.randint(4, 8, (3, 9), generator=torch.Generator().manual_seed(2))
    assert_close(ours(tokens).logits, theirs(tokens)[0], rtol=0, atol=1e-5)
    assert ours.config.id2label[5] == "2" == task.target_dictionary[5]


@pytest.mark.parametrize("facts", [False, True])
@pytest.mark.parametrize("question_memory", [False, True])
@torch.no_grad()
def test_answers(facts, question_memory, tmp_path):
    cfg = SpanAnsweringConfig(supporting_facts=facts, question_memory=question_memory)
    theirs = bert(words=MASKABLE)
    theirs.set_submodule("encoder.lm_head", shaken(SpanHead(16, facts)))
    task = SpanAnsweringTask(cfg, MASKABLE)
    ours = saved(tmp_path, converted(theirs, task), AutoModelForQuestionAnswering)
    # <s> question </s> context </s>; questions of two and of five words
    tokens = torch.tensor([[0, 4, 5, 2, 6, 7, 8, 9, 2, 1], [0, 4, 9, 7, 8, 5, 2, 9, 10, 2]])
    words = torch.tensor([[4, 5, 1, 1, 1], [4, 9, 7, 8, 5]])
    given = {"memory_words": words} if question_memory else {}
    scores, out = theirs(tokens, **given)[0], ours(tokens)
    found = torch.stack([out.start_logits, out.end_logits], dim=2)
    real = tokens.ne(PAD)
    assert_close(found[real], scores[..., :2][real], rtol=0, atol=1e-5)
    if facts:
        assert_close(out.fact_logits[real], scores[..., 2:][real], rtol=0, atol=1e-5)
    else:
        assert out.fact_logits is None
    padded_left = ours(torch.cat([tokens[:1, -1:], tokens[:1, :-1]], dim=1)).start_logits[:, 1:]
    assert_close(padded_left, out.start_logits[:1, :-1], rtol=0, atol=1e-5)


def test_what_has_no_counterpart_is_refused():
    model = bert(words=MASKABLE)
    model.register_classification_head("sentences", 2)
    with pytest.raises(MemAttnError, match="heads sentences of --task sentence_prediction"):
        converted(model, TASK)
    with pytest.raises(MemAttnError, match="--quant-noise-pq must be 0 .* but is 0.1"):
        converted(build("gmat_bert", words=MASKABLE, quant_noise_pq=0.1, **SMALL), TASK)
