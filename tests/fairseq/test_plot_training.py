"""`memattn plot --training`: what is drawn and summarised is what fairseq-train has logged."""

import json

import pytest
from full import full
from harness import LANGUAGE_MODEL, logged, train
from matplotlib.image import imread

from fairseq_memattn.cli import main
from fairseq_memattn.evaluation.training_log import read_training_log

ROW = "2026-01-01 00:00:00 | INFO | train_inner | epoch 001:  2 / 9 loss={}, ppl=4, num_updates={}"


def plotted(capsys, *arguments, status=0):
    assert main(["plot", "--training", *map(str, arguments)]) == status
    done = capsys.readouterr()
    return done.err if status else done.out


@pytest.mark.parametrize("form", ["json", full("simple")])
def test_a_log_of_fairseq(form, monolingual, tmp_path, capsys):
    log, picture, figures = (tmp_path / name for name in ("log", "curves.png", "curves.json"))
    flags = ["--log-format", form, "--max-update", 4, "--validate-interval-updates", 2, "--no-save"]
    trained = train(monolingual, tmp_path, *LANGUAGE_MODEL, *flags, "--log-file", log)
    text = plotted(capsys, f"tiny={log}", "--output", picture, "--json", figures)
    (found,) = json.loads(figures.read_text())
    assert found["name"] == "tiny"
    assert [row["num_updates"] for row in found["train"]] == [1, 2, 3, 4]
    assert [row["num_updates"] for row in found["valid"]["valid"]] == [2, 4]
    last = found["valid"]["valid"][-1]
    assert text.splitlines()[1].split()[:3] == ["tiny", "4", f"{found['train'][-1]['loss']:g}"]
    assert f"{last['loss']:g} after 4" in text
    if form == "json":
        for kind, rows in (("train_inner", found["train"]), ("valid", found["valid"]["valid"])):
            prefix = "valid_" if kind == "valid" else ""
            expected = [float(row[f"{prefix}loss"]) for row in logged(trained.log, kind)]
            assert [row["loss"] for row in rows] == expected
    assert imread(picture).shape[2] == 4


def test_a_loss_that_is_no_number(tmp_path, capsys):
    log, figures = tmp_path / "log", tmp_path / "figures.json"
    epoch = "epoch 001 | valid on 'valid' subset | loss {} | num_updates {}"
    log.write_text("\n".join(epoch.format(*row) for row in (("nan", 10), (3.5, 20))))
    text = plotted(capsys, log, "--output", tmp_path / "x.png", "--json", figures)
    assert "3.5 after 20" in text and "nan" not in text
    found = json.loads(figures.read_text(), parse_constant=pytest.fail)
    assert [row["loss"] for row in found[0]["valid"]["valid"]] == [None, 3.5]


def test_a_log_of_hydra(tmp_path):
    log = tmp_path / "hydra_train.log"
    valid = "epoch 001 | valid on 'valid' subset | loss 3.3 | ppl 10 | num_updates 2"
    lines = [("train_inner", ROW[ROW.index("epoch") :].format(4.1, 2)), ("valid", valid)]
    lines = [f"[2026-01-01 00:00:00,799][{who}][INFO] - {text}" for who, text in lines]
    log.write_text(
        "\n".join(
            [
                *lines,
                '[2026-01-01 00:00:01,0][train][INFO] - {"epoch": 1, '
                '"train_loss": "3.9", "train_num_updates": "2"}',
            ]
        )
    )
    found = read_training_log("x", log)
    assert ([row["loss"] for row in found.train], found.valid["valid"][0]["loss"]) == ([4.1], 3.3)


def test_a_resumed_training(tmp_path):
    """What was trained twice counts once; a line that was cut off does not."""
    log = tmp_path / "log"
    steps = [(5.0, 1), (4.0, 2), (3.5, 3), (3.9, 2), (3.4, 3), ("nan", 4)]
    log.write_text("\n".join([*(ROW.format(*step) for step in steps), ROW[:60]]))
    found = read_training_log("x", log)
    assert [(row["num_updates"], row["loss"]) for row in found.train[:3]] == [
        (1, 5.0),
        (2, 3.9),
        (3, 3.4),
    ]
    assert found.train[3]["num_updates"] == 4


@pytest.mark.parametrize("path", ["train.log", "../run/train.log"])
def test_a_log_has_the_name_of_its_folder(path, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text(ROW.format(1.0, 1))
    monkeypatch.chdir(folder)
    table = plotted(capsys, path.format(folder), "--output", "x.png")
    assert table.splitlines()[1].split()[0] == "run"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{0}/empty"], "--training {0}/empty must be a log of fairseq-train"),
        (["a={0}/log", "a={0}/empty"], "--training a={0}/empty: a is the name of {0}/log as well"),
        (["a={0}/log", "--output", "{0}/log"], "--output {0}/log would overwrite the input"),
    ],
)
def test_errors(arguments, message, tmp_path, capsys):
    (tmp_path / "empty").write_text("")
    (tmp_path / "log").write_text(ROW.format(1.0, 1))
    given = [one.format(tmp_path) for one in arguments]
    if "--output" not in given:
        given += ["--output", tmp_path / "x.png"]
    assert message.format(tmp_path) in plotted(capsys, *given, status=1)
