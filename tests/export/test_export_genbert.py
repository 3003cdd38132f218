"""GenBERT in transformers' format against fairseq's."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from test_genbert import genbert
from test_gmat import EOS, MASKABLE, PAD, rows
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM

from fairseq_memattn.export.converters import converted

TASK = SimpleNamespace(source_dictionary=MASKABLE, target_dictionary=MASKABLE)
each_design = pytest.mark.parametrize("design", ["untied", "norm before", "the last layer decodes"])
SOURCES = (rows(9, 5), rows(9, 5, left=True), rows(7, 11))


def both(design, folder):
    """fairseq's model, and the same as an Auto class loads it."""
    theirs = genbert(design)
    converted(theirs, TASK).save_pretrained(folder)
    ours, report = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return theirs, ours


@each_design
@torch.no_grad()
def test_logits(design, tmp_path):
    theirs, ours = both(design, tmp_path)
    for source in SOURCES:
        target = rows(6, 3, seed=1)
        real = target.ne(PAD)
        expected = theirs(source, None, target)[0]
        out = ours(source, decoder_input_ids=target)
        assert_close(out.logits[real], expected[real], rtol=0, atol=1e-5)
        assert len(out.past_key_values) >= len(theirs.decoder.decoder_layers)
        masked = ours(source, decoder_input_ids=target, decoder_attention_mask=real)
        assert_close(masked.logits[real], expected[real], rtol=0, atol=1e-5)


def in_fairseq_s_length(limit):
    """Only eos after `limit` symbols, with the score that it has."""
    return lambda _, tokens: [EOS] if len(tokens) > limit else [*range(len(MASKABLE))]


@pytest.mark.parametrize("lenpen", [0.6, 2.0])
@each_design
@torch.no_grad()
def test_five_beams(design, lenpen, tmp_path):
    theirs, ours = both(design, tmp_path)
    search = SequenceGenerator([theirs], MASKABLE, beam_size=5, max_len_b=8, len_penalty=lenpen)
    source = rows(9, 5, 7, left=True)
    sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(PAD).sum(dim=1)}}
    out = ours.generate(
        source,
        num_beams=5,
        early_stopping=True,
        length_penalty=lenpen,
        min_new_tokens=1,
        max_new_tokens=9,
        suppress_tokens=[PAD],
        prefix_allowed_tokens_fn=in_fairseq_s_length(8),
        output_scores=True,
        return_dict_in_generate=True,
    )
    found = search.generate([theirs], sample)
    for tokens, score, (best, *_) in zip(out.sequences, out.sequences_scores, found, strict=True):
        assert torch.equal(tokens[1:][tokens[1:].ne(PAD)], best["tokens"])
        assert_close(score, best["score"], rtol=0, atol=1e-5)
