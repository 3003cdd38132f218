"""The criterion of masked language modelling that counts errors, beside fairseq's own."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.logging import metrics
from test_gmat import PAD, SMALL, WORDBOOK, build, rows

from fairseq_memattn.criterions.masked_lm_error import MaskedLmErrorCriterion

TASK = SimpleNamespace(target_dictionary=WORDBOOK)


def sample(seed, *lengths):
    tokens = rows(*lengths, seed=seed)
    masked = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    target = tokens.masked_fill(~masked | tokens.eq(PAD), PAD)
    sizes = {"ntokens": int(tokens.ne(PAD).sum()), "nsentences": len(lengths)}
    return {"net_input": {"src_tokens": tokens}, "target": target, **sizes}


def reduced(criterion, logged):
    with metrics.aggregate() as found:
        criterion.reduce_metrics(logged)
        return found.get_smoothed_values()


def test_loss_of_fairseq_and_errors_counted_one_by_one():
    model = build("gmat_bert", **SMALL)
    model.get_targets = lambda sample, output: sample["target"]
    ours = MaskedLmErrorCriterion(TASK)
    theirs = MaskedLmLoss(SimpleNamespace(tpu=False), TASK)
    samples = [sample(1, 12, 7), sample(2, 9)]
    first = samples[0]["target"]  # the model says what is right at some places
    said = model(samples[0]["net_input"]["src_tokens"])[0].argmax(-1)
    first[:, :5] = torch.where(first[:, :5].eq(PAD), PAD, said[:, :5])
    outputs, expected = ([criterion(model, one) for one in samples] for criterion in (ours, theirs))
    for (loss, size, _), (their_loss, their_size, _) in zip(outputs, expected, strict=True):
        assert float(loss) == pytest.approx(float(their_loss), rel=1e-6)
        assert size == int(their_size)
    wrong, masked = 0, 0
    for one in samples:
        best = model(one["net_input"]["src_tokens"])[0].argmax(-1)
        for said, target in zip(best.flatten(), one["target"].flatten(), strict=True):
            masked += int(target != PAD)
            wrong += int(target != PAD and said != target)
    found = reduced(ours, [logged for *_, logged in outputs])
    their = reduced(theirs, [logged for *_, logged in expected])
    assert 0 < wrong < masked
    assert found["error"] == pytest.approx(100 * wrong / masked, abs=0.01)
    assert (found["loss"], found["ppl"]) == (their["loss"], their["ppl"])


def test_nothing_masked_counts_for_nothing():
    one = sample(1, 5)
    one["target"][:] = PAD
    criterion = MaskedLmErrorCriterion(TASK)
    loss, size, logged = criterion(build("gmat_bert", **SMALL), one)
    assert float(loss) == 0.0 and size == 0 and math.isfinite(float(loss))
    loss.backward()
    assert "error" not in reduced(criterion, [logged])
    other = criterion(build("gmat_bert", **SMALL), sample(2, 9))[2]
    assert reduced(criterion, [logged, other]) == reduced(criterion, [other])
