"""SQuAD answered by spans: the real commands, from JSON to scores."""

import json
import shutil

import numpy as np
import pytest
from harness import NO_EPOCH_END, PLUGGED, logged, run, run_on, train_on
from questions import ANSWERER, SPAN_TRAINING, SPANS, prepare, squad_records

from fairseq_memattn.cli import main
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.qa.answer_scores import mean, score_answer
from fairseq_memattn.qa.span_records import NOT_PUBLIC, NUMBERS, read_span_records
from fairseq_memattn.tasks.span_answering import SpanAnsweringConfig, SpanAnsweringTask
from fairseq_memattn.tasks.validation import MEASURES

BEST = ["--best-checkpoint-metric", "f1", "--maximize-best-checkpoint-metric"]


@pytest.fixture(scope="module")
def squad_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("squad")
    sets = {"train": squad_records(60, 1), "valid": squad_records(20, 2)}
    return prepare("squad", folder, ["--spans"], **sets)


@pytest.mark.full
def test_squad_from_a_masked_language_model(squad_data, tmp_path, capsys):
    masked = [*PLUGGED, *ANSWERER, *SPAN_TRAINING, "--max-update", 2, "--task", "masked_lm"]
    masked += ["--criterion", "masked_lm", "--tokens-per-sample", 48]
    run("fairseq-train", squad_data / "context", *masked, "--save-dir", tmp_path / "masked")
    start = tmp_path / "masked/checkpoint_last.pt"
    flags = [
        *PLUGGED,
        *ANSWERER,
        *SPAN_TRAINING,
        *SPANS,
        "--save-dir",
        tmp_path,
        "--max-update",
        60,
    ]
    flags += ["--save-dir", tmp_path, "--finetune-from-model", start, "--eval-answers", *BEST]
    done = run("fairseq-train", squad_data, *flags)
    message = "the checkpoint has no encoder.lm_head.span.weight: it keeps its initial values"
    assert message in done.stdout
    losses = [float(row["loss"]) for row in logged(done.stdout, "train_inner")]
    assert losses[0] > 3 and min(losses[-5:]) < 0.5 * losses[0]
    path = tmp_path / "checkpoint_last.pt"
    validated = logged(done.stdout, "valid")
    last = validated[-1]
    best = max(float(one["valid_f1"]) for one in validated)
    assert float(last["valid_best_f1"]) == best > 0
    again = ["--path", path, "--batch-size", 7, "--log-format", "json"]
    done = run("fairseq-validate", squad_data, *PLUGGED, *SPANS, *again)
    (row,) = logged(done.stdout + done.stderr, "valid")
    assert float(row["valid_loss"]) == pytest.approx(float(last["valid_loss"]), abs=2e-3)
    in_training, again = ([float(one[f"valid_{name}"]) for name in MEASURES] for one in (last, row))
    assert in_training == again

    outputs = {name: tmp_path / f"{name}.json" for name in ("predictions", "nbest", "json")}
    argv = ["spans", str(squad_data), "--path", str(path), "--cpu", "--n-best", "5"]
    argv += [part for name, file in outputs.items() for part in (f"--{name}", str(file))]
    assert main([*argv, "--max-tokens", "100"]) == 0
    shown = capsys.readouterr().out
    said = {name: json.loads(file.read_text()) for name, file in outputs.items()}
    asked = list(read_span_records(squad_data / "records/valid.jsonl"))
    assert list(said["predictions"]) == [one.id for one in asked]
    expected = mean(
        [score_answer(said["predictions"][one.id], one.answers, "squad") for one in asked]
    )
    assert said["json"] == {"all": {"questions": 20} | expected._asdict()}
    assert f"{100 * expected.f1:.3f}" in shown
    assert in_training == pytest.approx([100 * value for value in expected], abs=1e-3)
    for one in asked:
        listed = said["nbest"][one.id]
        assert listed[0]["text"] == said["predictions"][one.id]
        assert len({entry["text"] for entry in listed}) == len(listed) <= 5
        assert all(entry["text"] in one.context for entry in listed)
        assert sum(entry["probability"] for entry in listed) == pytest.approx(1)
    # Answers do not depend on the batches, and the official form is understood.
    assert main([*argv, "--max-tokens", "9999"]) == 0
    assert json.loads(outputs["predictions"].read_text()) == said["predictions"]
    gold = squad_data.parents[1] / "valid.json"
    assert main(["answers", "--answers", str(outputs["predictions"]), "--gold", str(gold)]) == 0
    assert f"{100 * expected.f1:.3f}" in capsys.readouterr().out


@pytest.mark.full
def test_validation_in_several_processes(squad_data, tmp_path):
    flags = [*PLUGGED, *ANSWERER, *SPAN_TRAINING, *SPANS, "--max-update", 8, "--eval-answers"]
    flags += NO_EPOCH_END
    trained = train_on(2, squad_data, tmp_path, *flags, "--batch-size-valid", 7)
    last = logged(trained.log, "valid")[-1]
    out = tmp_path / "scores.json"
    argv = ["spans", str(squad_data), "--path", str(trained.checkpoint), "--cpu", "--json"]
    assert main([*argv, str(out)]) == 0
    expected = json.loads(out.read_text())["all"]
    assert expected.pop("questions") == 20 and expected["f1"] > 0
    model = ["--path", trained.checkpoint, "--batch-size", 7, "--log-format", "json"]
    validate = ["fairseq-validate", squad_data, *PLUGGED, *SPANS, *model]
    done = run_on(3, tmp_path / "streams", *validate)[0]
    (again,) = logged(done.stdout + done.stderr, "valid")
    for found in (last, again):
        found = [float(found[f"valid_{name}"]) for name in MEASURES]
        assert found == pytest.approx([100 * value for value in expected.values()], abs=1e-3)


def test_splits_that_cannot_be_answered_in_validation(squad_data, tmp_path):
    folder = tmp_path / "bin"
    shutil.copytree(squad_data, folder)
    task = SpanAnsweringTask.setup_task(SpanAnsweringConfig(data=str(folder), eval_answers=True))
    task.load_dataset("valid")
    task.load_dataset("valid", combine=True)
    with pytest.raises(MemAttnError, match="cannot answer valid, which was loaded for training"):
        task.valid_step({"split": "valid"}, None, None)
    np.full(40, NOT_PUBLIC, NUMBERS["answers"]).tofile(folder / "answers/valid")
    with pytest.raises(MemAttnError, match="--eval-answers: the answers of valid are not public"):
        task.load_dataset("valid")
    task = SpanAnsweringTask.setup_task(SpanAnsweringConfig(data=str(folder)))
    task.load_dataset("valid")
