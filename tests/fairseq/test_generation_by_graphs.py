"""fairseq's search with recorded steps finds what it finds without them."""

import abc_models
import pytest
import test_gmat
import torch
from fairseq.sequence_generator import SequenceGenerator
from full import others_in_full
from recorded_graphs import record_graphs
from torch.testing import assert_close

FEW = ["abc_mlp_transformer"]
NO_CAUSAL_SLOTS = ("abc_workspace_transformer",)


def search(model, beam, **options):
    source, lengths = test_gmat.rows(9, 5, left=True), torch.tensor([9, 5])
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
    words = test_gmat.WORDBOOK
    generator = SequenceGenerator([model], words, beam_size=beam, max_len_b=9, min_len=9, **options)
    return [row[0] for row in generator.generate([model], sample)]


@torch.no_grad()
@pytest.mark.parametrize("beam", others_in_full([1, 3], [3]))
@pytest.mark.parametrize("arch", others_in_full(abc_models.TRANSLATORS, FEW))
def test_search(arch, beam, monkeypatch):
    model = abc_models.translator(arch).eval()
    expected = search(model, beam)
    recorded = record_graphs(monkeypatch)
    for actual, hypothesis in zip(search(model, beam), expected, strict=True):
        assert actual["tokens"].equal(hypothesis["tokens"])
        assert_close(actual["positional_scores"], hypothesis["positional_scores"])
    # The first step writes the source's memory, the second one finds that the shapes stay.
    assert recorded.graphs == (arch not in NO_CAUSAL_SLOTS)
    assert recorded.replays in (0, 6, 7, 8)


@torch.no_grad()
def test_steps_that_are_not_recorded(monkeypatch):
    """Those that need weights of the source, and those of softmax attention."""
    recorded = record_graphs(monkeypatch)
    asked = abc_models.translator("abc_mlp_transformer").eval()
    for layer in asked.decoder.layers:
        layer.encoder_attn.make_generation_fast_(need_attn=True)
    for model in (asked, abc_models.translator("abc_mlp_transformer", abc_cross_slots=0).eval()):
        search(model, beam=1)
    assert recorded.graphs == 0


@torch.no_grad()
def test_a_language_model(monkeypatch):
    model = abc_models.language_model("abc_mlp_transformer_lm").eval()
    tokens = test_gmat.rows(9, 9)
    expected, _ = model(tokens)
    recorded, state = record_graphs(monkeypatch), {}
    steps = [model(tokens[:, :t], incremental_state=state)[0] for t in range(1, 10)]
    assert_close(torch.cat(steps, dim=1), expected)
    assert (recorded.graphs, recorded.replays) == (1, 7)
