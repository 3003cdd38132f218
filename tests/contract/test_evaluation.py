"""Perplexities and losses: the same whatever is evaluated together, in one piece or in parts."""

import json
import re

import pytest
import torch
from contract_cases import POSITIONS, each_case
from contract_models import build
from harness import PLUGGED, logged, run
from test_generation import TEST, from_pretrained

COMPANY = {
    "one at a time": ["--batch-size", 1],
    "few tokens": ["--max-tokens", 40],
    "together": ["--batch-size", 16],
}
MULTIPLE = ["--required-batch-size-multiple", 1]


def word_scores(model, *flags):
    """The words that fairseq-eval-lm prints with their scores, by block."""
    done = run(
        *("fairseq-eval-lm", model.data, *PLUGGED, "--path", model.checkpoint),
        *("--output-word-probs", "--sample-break-mode", "eos", *MULTIPLE),
        *("--tokens-per-sample", POSITIONS, *flags),
    )
    blocks = {}
    for number, row in re.findall(r"\| (\d+) (\S+ \[.*)$", done.stdout + done.stderr, re.MULTILINE):
        scored = re.findall(r"(\S+) \[(\S+)\]", row)
        blocks[int(number)] = {n: (word, float(score)) for n, (word, score) in enumerate(scored)}
    assert len(blocks) == len(TEST["x"])
    return blocks


@each_case("language_model", every=14, first=3)
def test_perplexity_in_any_company(case, models):
    model = models(case)
    found = [word_scores(model, *flags) for flags in COMPANY.values()]
    for number, words in found[0].items():
        for other in found[1:]:
            assert words.keys() == other[number].keys()
            for place, (word, score) in words.items():
                assert other[number][place] == (word, pytest.approx(score, abs=1e-4))


def stream_loss(model, folder, *flags):
    rows = folder / "rows.json"
    given = ["--path", model.checkpoint, "--cpu", "--stateful", "--documents", "--json", rows]
    run("memattn", "perplexity", model.data, *given, *flags)
    (row,) = json.loads(rows.read_text())
    return row["loss"]


@each_case("language_model", every=14, first=9)
def test_a_stream_in_segments_is_the_whole_stream(case, models, tmp_path):
    model = models(case)
    whole = stream_loss(model, tmp_path, "--tokens-per-sample", 100)
    for segment, batch in ((7, 7), (5, 20)):
        flags = ["--tokens-per-sample", segment, "--max-tokens", batch]
        assert stream_loss(model, tmp_path, *flags) == pytest.approx(whole, abs=1e-5)


@pytest.mark.full
@each_case("masked", every=20, first=2)
def test_masked_words_in_any_company(case, models):
    """The masks depend on the seed and on the number of a sentence."""
    model, found = models(case), []
    for flags in COMPANY.values():
        done = run(
            *("fairseq-validate", model.data, *PLUGGED, "--path", model.checkpoint),
            *("--task", "masked_lm", "--log-format", "json", *MULTIPLE, *flags),
        )
        (row,) = logged(done.stdout + done.stderr, "valid")
        found.append(float(row["valid_loss"]))
    assert found == pytest.approx([found[0]] * len(found), abs=2e-3)


@each_case("masked", every=20, first=17)
def test_from_pretrained_is_the_model(case, models, contract_data):
    model, task, _ = build(case, contract_data)
    loaded = from_pretrained(case, models(case), bpe=None).model
    task.load_dataset("test")
    examples = [task.dataset("test")[number] for number in range(4)]
    inputs = task.dataset("test").collater(examples)["net_input"]
    with torch.no_grad():
        torch.testing.assert_close(loaded(**inputs)[0], model(**inputs)[0], rtol=0, atol=0)
