"""HotpotQA answered by spans, with supporting facts and the question as memory."""

import json
from collections import Counter

import pytest
from harness import PLUGGED, logged, run
from questions import ANSWERER, SPAN_TRAINING, SPANS, prepare, records

from fairseq_memattn.cli import main
from fairseq_memattn.cli.commands.spans import scores_by_type, scores_with_facts
from fairseq_memattn.qa.answer_scores import normalise_answer
from fairseq_memattn.qa.span_records import SpanRecord, read_span_records

VERDICTS = ("yes", "no", "noanswer")


def overlap(said, right):
    """Exact match, precision and recall of one bag of things, as hotpot_evaluate_v1.py has them."""
    same = sum((Counter(said) & Counter(right)).values())
    return float(said == right), same / max(len(said), 1), same / max(len(right), 1)


def of_answers(said, right):
    said, right = normalise_answer(said), normalise_answer(right)
    exact, precision, recall = overlap(said.split(), right.split())
    wrong_verdict = said != right and (said in VERDICTS or right in VERDICTS)
    return (exact, 0, 0) if wrong_verdict else (exact, precision, recall)


def of_facts(said, right):
    return overlap(*(sorted({tuple(fact) for fact in facts}) for facts in (said, right)))


def official(predicted, gold):
    """The means of hotpot_evaluate_v1.py over all questions; those not predicted add nothing."""
    sums = {name: [0.0] * 4 for name in ("all", "supporting facts", "joint")}

    def add(name, exact, precision, recall):
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
        for place, value in enumerate((exact, f1, precision, recall)):
            sums[name][place] += value / len(gold)

    for one in gold:
        answer = predicted["answer"].get(one["_id"])
        facts = predicted["sp"].get(one["_id"])
        if answer is not None:
            add("all", *of_answers(answer, one["answer"]))
        if facts is not None:
            add("supporting facts", *of_facts(facts, one["supporting_facts"]))
        if answer is not None and facts is not None:
            pairs = zip(
                of_answers(answer, one["answer"]),
                of_facts(facts, one["supporting_facts"]),
                strict=True,
            )
            add("joint", *(one * other for one, other in pairs))
    return sums


def test_joint_scores_are_the_official_ones():
    gold = [
        {"_id": "0", "answer": "the red cat", "supporting_facts": [["a", 0], ["b", 1]]},
        {"_id": "1", "answer": "red cat", "supporting_facts": [["a", 0], ["a", 1], ["b", 2]]},
        {"_id": "2", "answer": "yes", "supporting_facts": [["a", 0], ["b", 0]]},
        {"_id": "3", "answer": "yes", "supporting_facts": [["a", 3]]},
        {"_id": "4", "answer": "dog", "supporting_facts": [["a", 0], ["b", 1]]},
        {"_id": "5", "answer": "dog", "supporting_facts": [["a", 0]]},
        {"_id": "6", "answer": "dog", "supporting_facts": [["a", 0]]},
    ]
    predicted = {
        "answer": {
            "0": "Red cat.",
            "1": "a black cat runs",
            "2": "yes, it is",
            "3": "Yes",
            "4": "dog",
        },
        "sp": {
            "0": [["b", 1], ["a", 0], ["a", 0]],
            "1": [["a", 0], ["b", 2], ["c", 0], ["c", 1]],
            "2": [["a", 0], ["b", 0]],
            "3": [["b", 3]],
            "5": [["a", 0]],
        },
    }
    records = [
        SpanRecord(
            "hotpotqa",
            one["_id"],
            (one["answer"],),
            *("", "", "", (), ()),
            frozenset(map(tuple, one["supporting_facts"])),
        )
        for one in gold
    ]
    answers = [predicted["answer"].get(one.id, "") for one in records]
    facts = [[*map(tuple, predicted["sp"].get(one.id, []))] for one in records]
    rows = scores_by_type(records, answers) | scores_with_facts(records, answers, facts)
    expected = official(predicted, gold)
    assert rows.keys() == expected.keys()
    for name, (size, score) in rows.items():
        assert size == 7 and score == pytest.approx(expected[name]), name
    # Question 0 is right in all; of 1 the precisions are 1/3 and 1/2, the recalls 1/2 and 2/3.
    assert expected["joint"] == pytest.approx(
        [1 / 7, (1 + 2 / 9) / 7, (1 + 1 / 6) / 7, (1 + 1 / 3) / 7]
    )


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
    scores = tmp_path / "scores.json"
    assert main([*argv, "--predictions", str(out), "--json", str(scores)]) == 0
    shown = capsys.readouterr().out
    rows = ["questions", "all", "bridge", "comparison", "supporting facts", "joint"]
    assert [line.split("  ")[0] for line in shown.splitlines()[1:]] == rows
    said = json.loads(out.read_text())
    assert said["answer"].keys() == said["sp"].keys() and len(said["sp"]) == 21
    asked = {one.id: one for one in read_span_records(hotpot_data / "records/valid.jsonl")}
    for name, facts in said["sp"].items():
        known = {(one.title, one.number) for one in asked[name].sentences}
        assert {tuple(fact) for fact in facts} <= known
    gold = json.loads((hotpot_data.parents[1] / "valid.json").read_text())
    found = json.loads(scores.read_text())
    for name, expected in official(said, gold).items():
        assert found[name].pop("questions") == 21
        assert [*found[name].values()] == pytest.approx(expected), name
    assert 0 < found["joint"]["f1"] < found["all"]["f1"]
