"""A training that is resumed goes on as it was."""

import fairseq_cli.train
import pytest
import torch
from full import full
from harness import LANGUAGE_MODEL, TRANSLATOR, attempt, run, train

from fairseq_memattn.files import locked
from fairseq_memattn.host.checkpoints import read_checkpoint

EVERY = ["--save-interval-updates", 1, "--validate-interval-updates", 1]


def best_of(folder):
    return sorted(path.name for path in folder.glob("checkpoint.best_*"))


@pytest.mark.full
def test_as_many_of_the_best_as_asked_for(bilingual, tmp_path):
    """With a learning rate at which every validation but the first is worse."""
    flags = [*TRANSLATOR, *EVERY, "--keep-best-checkpoints", 3, "--lr", 0.2, "--max-update", 4]
    train(bilingual, tmp_path, *flags)
    assert len(best_of(tmp_path)) == 3


def test_patience_goes_on(bilingual, tmp_path):
    flags = [*TRANSLATOR, *EVERY, "--patience", 3, "--lr", 0]
    first = train(bilingual, tmp_path, *flags, "--max-update", 3)
    assert "early stop" not in first.log
    assert read_checkpoint(first.checkpoint)["extra_state"]["patience"]["num_runs"] == 2
    vars(fairseq_cli.train.should_stop_early).clear()  # as in another process
    second = train(bilingual, tmp_path, *flags, "--max-update", 4)
    assert "hasn't improved for last 3 runs" in second.log


def test_the_best_of_another_folder_is_none(translator, tmp_path):
    flags = [*TRANSLATOR, "--restore-file", translator.checkpoint, "--max-update", 71, "--lr", 0.5]
    flags += ["--save-interval", 1, "--validate-interval", 1, *EVERY]
    train(translator.data, tmp_path, *flags)
    assert (tmp_path / "checkpoint_best.pt").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--max-tokens 500", "--max-tokens 500, but {} was trained with 1000"),
        full("--tokens-per-sample 16", "--tokens-per-sample 16, but {} was trained with 32"),
        (
            "--lr-scheduler inverse_sqrt",
            "--lr-scheduler inverse_sqrt, but {} was trained with fixed",
        ),
    ],
)
def test_what_the_state_does_not_fit(flags, words, request, tmp_path):
    of_blocks = "--tokens-per-sample" in flags
    trained = request.getfixturevalue("language_model" if of_blocks else "translator")
    state = read_checkpoint(trained.checkpoint)
    state["extra_state"]["train_iterator"]["iterations_in_epoch"] = 2
    saved = tmp_path / "checkpoint_last.pt"
    torch.save(state, saved)
    given = [*(LANGUAGE_MODEL if of_blocks else TRANSLATOR), *flags.split()]
    done = attempt(
        "fairseq-train", trained.data, *given, "--max-update", 999, "--save-dir", tmp_path
    )
    assert words.format(saved) in done.stderr.splitlines()[-1]


def test_without_a_state_of_the_optimizer(translator, tmp_path):
    state = read_checkpoint(translator.checkpoint)
    del state["last_optimizer_state"]
    torch.save(state, tmp_path / "checkpoint_last.pt")
    done = attempt("fairseq-train", translator.data, *TRANSLATOR, "--save-dir", tmp_path)
    assert "has no state of the optimizer" in done.stderr.splitlines()[-1]


@pytest.mark.full
def test_one_training_a_folder(translator, tmp_path):
    with locked(tmp_path / ".lock", ""):
        given = [translator.data, *TRANSLATOR, "--max-update", 1, "--save-dir", tmp_path]
        done = attempt("fairseq-train", *given, fresh=True)
    assert f"another training is writing to --save-dir {tmp_path}" in done.stderr
    run("fairseq-train", *given)
