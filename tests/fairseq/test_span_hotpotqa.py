"""HotpotQA answered by spans, with supporting facts and the question as memory."""

import json

import pytest
from harness import PLUGGED, logged, run
from questions import ANSWERER, SPAN_TRAINING, SPANS, prepare, records

from fairseq_memattn.cli import main
from fairseq_memattn.evaluation.span_records import read_span_records


@pytest.fixture(scope="module")
def hotpot_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hotpot")
    options = ["--spans", "--gold-separated", "--repeat-question"]
    return prepare("hotpotqa", folder, options, train=records(60, 1), valid=records(21, 2))


def test_hotpotqa_with_facts_and_the_question_as_memory(hotpot_data, tmp_path, capsys):
    flags = [*PLUGGED, *ANSWERER, *SPAN_TRAINING, *SPANS, "--save-dir", tmp_path, "--max-update", 5]
    done = run("fairseq-train", hotpot_data, *flags, "--supporting-facts", "--question-memory")
    (last,) = logged(done.stdout, "valid")[-1:]
    parts = [float(last[f"valid_{name}_loss"]) for name in ("span", "fact")]
    assert sum(parts) == pytest.approx(float(last["valid_loss"]), abs=2e-3)
    out = tmp_path / "predictions.json"
    argv = ["spans", str(hotpot_data), "--path", str(tmp_path / "checkpoint_last.pt"), "--cpu"]
    assert main([*argv, "--predictions", str(out)]) == 0
    shown = capsys.readouterr().out
    assert [line.split("  ")[0] for line in shown.splitlines()[1:]] == [
        "questions",
        "all",
        "bridge",
        "comparison",
        "supporting facts",
    ]
    said = json.loads(out.read_text())
    assert said["answer"].keys() == said["sp"].keys() and len(said["sp"]) == 21
    asked = {one.id: one for one in read_span_records(hotpot_data / "records/valid.jsonl")}
    for name, facts in said["sp"].items():
        known = {(one.title, one.number) for one in asked[name].sentences}
        assert {tuple(fact) for fact in facts} <= known
