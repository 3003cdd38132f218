"""Training and validation in several processes on the CPU, started as torchrun starts them."""

import functools
import os
import shlex
import shutil
import signal

import pytest
from full import full
from harness import (
    PLUGGED,
    TRANSLATOR,
    WINDOWS,
    Trained,
    assert_same_weights,
    logged,
    run,
    run_on,
    script,
    start_on,
    train,
    train_on,
)

BATCHES = ["--update-epoch-batch-itr", "True", "--max-tokens", 500]
FLAGS = [*TRANSLATOR, *BATCHES, *shlex.split("--dropout 0.1 --attention-dropout 0.1")]


def losses(trained):
    return {
        int(row["num_updates"]): float(row["loss"]) for row in logged(trained.log, "train_inner")
    }


@pytest.mark.full
def test_torchrun_equals_one_process_with_twice_the_updates(bilingual, tmp_path):
    """torchrun itself, without any of fairseq's flags for it; both see the same batches."""
    flags = [*TRANSLATOR, "--max-update", 4, "--dropout", 0]
    one = train(bilingual, tmp_path / "one", *flags, "--update-freq", 2)
    command = [script("fairseq-train"), bilingual, *flags, "--save-dir", tmp_path / "two"]
    started = ["--standalone", "--nproc_per_node", 2, "--no-python", *command]
    done = run("torchrun", *started, fresh=True)
    assert "training on 2 devices" in done.stdout
    two = Trained(bilingual, tmp_path / "two" / "checkpoint_last.pt", done.stdout)
    assert losses(two) == pytest.approx(losses(one), abs=2e-3)
    assert_same_weights(two, one, rtol=1e-3, atol=2e-4)


@pytest.fixture(scope="module")
def whole(bilingual, tmp_path_factory):
    """Eight updates by two processes, with a checkpoint after the fifth."""
    folder = tmp_path_factory.mktemp("whole")
    flags = [*FLAGS, "--max-update", 8, "--save-interval-updates", 5]
    return train_on(2, bilingual, folder, *flags)


def begun(whole, folder):
    """A folder as it is when the training is stopped after five updates."""
    folder.mkdir()
    (saved,) = whole.checkpoint.parent.glob("checkpoint_*_5.pt")
    shutil.copy(saved, folder / "checkpoint_last.pt")
    return folder


@pytest.mark.full
@pytest.mark.parametrize("processes", [1, 3])
def test_other_numbers_of_processes_go_on(processes, whole, tmp_path):
    folder = begun(whole, tmp_path / "on")
    flags = [*FLAGS, "--max-update", 8]
    if processes == 1:
        resumed = train(whole.data, folder, *flags, "--update-freq", 2)
    else:
        resumed = train_on(processes, whole.data, folder, *flags)
    assert list(losses(resumed)) == [6, 7, 8]
    for number, loss in losses(resumed).items():
        assert loss == pytest.approx(losses(whole)[number], rel=0.2)


@pytest.mark.full
@pytest.mark.parametrize("processes", [1, full(2)])
def test_a_finished_training_is_left_as_it_is(processes, whole, tmp_path):
    folder = tmp_path / "on"
    shutil.copytree(whole.checkpoint.parent, folder)
    flags = [*FLAGS, "--max-update", 8 if processes == 1 else 5]
    start = train if processes == 1 else functools.partial(train_on, processes)
    log = start(whole.data, folder, *flags).log
    assert f"reached 8 updates, and --max-update is {flags[-1]}: nothing is trained" in log
    assert not logged(log, "train_inner")
    for file in whole.checkpoint.parent.iterdir():
        assert (folder / file.name).read_bytes() == file.read_bytes()


@pytest.mark.full
def test_a_killed_process_ends_the_others_and_resumed_equals_uninterrupted(whole, tmp_path):
    folder = tmp_path / "on"
    flags = [*FLAGS, "--max-update", 8, "--save-interval-updates", 5, "--save-dir", folder]
    first, second = start_on(2, tmp_path / "streams", "fairseq-train", whole.data, *flags)
    first.wait_until_it_prints("checkpoint_1_5.pt (epoch")
    os.kill(second.process, signal.SIGKILL)
    assert second.wait().returncode == -signal.SIGKILL
    assert first.wait().returncode != 0
    resumed = train_on(2, whole.data, folder, *FLAGS, "--max-update", 8)
    assert losses(resumed) == {n: loss for n, loss in losses(whole).items() if n > 5}
    assert_same_weights(resumed, whole, rtol=0, atol=0)


def validated(processes, trained, folder, *flags):
    given = [trained.data, *PLUGGED, "--path", trained.checkpoint, "--log-format", "json", *flags]
    given += ["--required-batch-size-multiple", 1, "--max-tokens", 60]
    if processes == 1:
        done = run("fairseq-validate", *given)
    else:
        done = run_on(processes, folder, "fairseq-validate", *given)[0]
    return validation(done.stdout + done.stderr)


def validation(log):
    (row,) = logged(log, "valid")
    names = ("valid_loss", "valid_bleu", "valid_chrf", "valid_d_bleu")
    return {name: float(row[name]) for name in names if name in row}


BLEU = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_a": 1, "max_len_b": 2}']


def test_validation_of_documents_is_that_of_one_process(document_model, tmp_path):
    one, several = (
        validated(n, document_model, tmp_path / "streams", *WINDOWS, *BLEU) for n in (1, 2)
    )
    assert several == pytest.approx(one, abs=2e-3)
    assert one["valid_bleu"] > 0


@pytest.mark.full
def test_processes_without_a_batch_end_in_one_sentence(translator, tmp_path):
    flags = ["--path", translator.checkpoint, "--task", "translation", "--batch-size", 50]
    processes = start_on(2, tmp_path, "fairseq-validate", translator.data, *PLUGGED, *flags)
    first, second = (process.wait() for process in processes)
    assert first.returncode != 0 and second.returncode == 1
    assert "there must be a batch for each process" in second.stderr.splitlines()[-1]
