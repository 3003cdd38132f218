"""Beam search after prefixes: read in one call, it finds what it finds token by token."""

import abc_models
import pytest
import test_gmat
import torch
from fairseq.sequence_generator import SequenceGenerator
from full import others_in_full
from torch.testing import assert_close

from fairseq_memattn.host.correctness.lengths import with_limits
from fairseq_memattn.tasks.inference.context_generator import ContextEnsemble
from fairseq_memattn.tasks.inference.context_search import ContextSearch

WORDS = test_gmat.WORDBOOK
HYBRID = {"abc_causal_layers": "mlp:4,softmax,mlp:4"}
MODELS = [
    *((arch, {}) for arch in abc_models.TRANSLATORS),
    ("abc_mlp_transformer", HYBRID),
    ("abc_mlp_transformer", {"abc_causal_slots": 0}),
    ("abc_mlp_transformer", {"abc_causal_slots": 0, "abc_cross_slots": 0}),
    ("gmat_transformer", {}),
]
FEW = [("abc_mlp_transformer", {}), ("abc_mlp_transformer", HYBRID), ("gmat_transformer", {})]


class TokenByToken(ContextEnsemble):
    """The models compute each step of the prefix."""

    def forward_encoder(self, net_input):
        return super().forward_encoder(net_input | {"common": 0})


@torch.no_grad()
@pytest.mark.parametrize("beam", others_in_full([1, 3], [3]))
@pytest.mark.parametrize("case", others_in_full(MODELS, FEW))
def test_a_prefix_in_one_call(case, beam):
    """Rows with prefixes of 3, 5 and 4 tokens, which end at different steps."""
    arch, options = case
    build = abc_models.translator if arch.startswith("abc") else test_gmat.build
    model = build(arch, **options).eval()
    source = test_gmat.rows(9, 5, 7, left=True)
    inputs = {"src_tokens": source, "src_lengths": torch.tensor([9, 5, 7])}
    inputs["common"] = 3
    prefixes = test_gmat.rows(3, 5, 4, seed=1)
    prefixes[prefixes.eq(test_gmat.EOS)] = 7
    found = []
    for ensemble in (ContextEnsemble, TokenByToken):
        generator = SequenceGenerator(ensemble([model], None, WORDS), WORDS, beam_size=beam)
        search = ContextSearch(generator, prefixes)
        limited = with_limits(generator, torch.tensor([14, 14, 14]), search)
        limited.search.require(search.lengths + 2, search.lengths)
        found.append(limited.generate([model], {"net_input": {**inputs}}))
    for actual, expected in zip(*found, strict=True):
        for hypothesis, other in zip(actual, expected, strict=True):
            assert hypothesis["tokens"].equal(other["tokens"])
            assert_close(hypothesis["positional_scores"], other["positional_scores"])
