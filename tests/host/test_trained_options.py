"""Options of a command against those with which its checkpoint was trained."""

import shutil

import pytest
from full import full, others_in_full
from harness import PLUGGED, TRANSLATOR, attempt, run

from fairseq_memattn.host.correctness.same_model import differences

OPPOSITE = "--source-lang and --target-lang are ru and en, but {} was trained from en to ru"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ("{'dropot': 1}", "names dropot, which is no option of {}; the most similar is dropout"),
        full("['dropout']", "must be a dictionary, such as {{'dropout': 0.1}}, but is ['dropout']"),
    ],
)
def test_overrides(overrides, words, translator):
    flags = [*PLUGGED, "--path", translator.checkpoint, "--model-overrides", overrides]
    done = attempt("fairseq-generate", translator.data, *flags)
    sentence = words.format(translator.checkpoint)
    assert done.stderr.splitlines()[-1] == f"fairseq-generate: error: --model-overrides {sentence}"


@pytest.mark.parametrize("command", ["validate", full("interactive")])
@pytest.mark.parametrize("opposite", [full(False), True])
def test_the_opposite_direction_is_a_warning(command, opposite, translator):
    flags = [*PLUGGED, "--path", translator.checkpoint]
    flags += ["-s", "ru", "-t", "en"] if opposite else []
    flags += ["--task", "translation", "--batch-size", 9] if command == "validate" else []
    done = run(f"fairseq-{command}", translator.data, *flags, stdin="")
    assert (OPPOSITE.format(translator.checkpoint) in done.stdout) == opposite


@pytest.mark.parametrize("other", [full(False), True])
@pytest.mark.parametrize("command", ["validate", full("train"), "memattn cxmi"])
def test_another_dictionary_of_the_same_size_is_a_warning(command, other, translator, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(translator.data, data)
    for path in data.glob("dict.*"):
        *lines, one, last = path.read_text(encoding="utf-8").splitlines()
        counts = [f"{line.partition(' ')[0]} 1" for line in lines]  # which do not matter
        ends = [last, one] if other else [one, last]
        path.write_text("\n".join([*counts, *ends, ""]), encoding="utf-8")
    if command == "train":
        flags = ["--finetune-from-model", translator.checkpoint, "--max-update", 1]
        done = run("fairseq-train", data, *TRANSLATOR, *flags, "--save-dir", tmp_path / "model")
    elif command == "validate":
        flags = [*PLUGGED, "--path", translator.checkpoint, "--task", "translation"]
        done = run("fairseq-validate", data, *flags, "--batch-size", 9)
    else:
        flags = ["--path", translator.checkpoint, "--cpu", "--source-context", 1]
        done = attempt("memattn", "cxmi", data, *flags)  # it has no separator
    words = f"{data}/dict.ru.txt has other symbols than {translator.data}/dict.ru.txt, with which"
    assert (words in done.stdout + done.stderr) == other


def test_blocks_of_the_length_of_the_training(language_model):
    flags = [*PLUGGED, "--path", language_model.checkpoint, "--gen-subset", "valid"]
    of_training = run("fairseq-eval-lm", language_model.data, *flags).stdout
    given = run("fairseq-eval-lm", language_model.data, *flags, "--tokens-per-sample", 32).stdout
    *_, perplexity = of_training.splitlines()
    assert perplexity.partition("Loss")[2] == given.splitlines()[-1].partition("Loss")[2] != ""


@pytest.mark.parametrize(
    ("control", "own", "differs"),
    [
        ("global", {"abc_stride": 0}, True),
        ("global", {"abc_stride": 2}, False),
        ("local_global", {"abc_stride": 0, "abc_global_positions": "0,3"}, False),
        ("compressive", {"abc_max_length": 0}, True),
        ("compressive", {"abc_max_length": 9}, False),
        ("mlp", {"abc_stride": 0, "abc_max_length": 0}, False),
    ],
)
def test_the_maximum_of_positions_where_slots_depend_on_it(control, own, differs):
    before, now = (
        {"arch": f"abc_{control}_transformer", "max_target_positions": most, **own}
        for most in (64, 32)
    )
    assert list(differences(before, now)) == [("max_target_positions", "64", "32")] * differs


OTHERS = {
    "--abc-activation relu": "exp",
    "--arch abc_compressive_transformer": "abc_mlp_transformer",
    "--encoder-attention-heads 4 --abc-phi-heads shared": "2 and separate",
    "--dropout 0.3": "",
}


@pytest.mark.parametrize("flags", others_in_full(OTHERS, ["--abc-activation relu"]))
@pytest.mark.parametrize("begins", ["resumed", full("further")])
def test_other_options_that_fit_the_same_weights(begins, flags, translator, tmp_path):
    given = [translator.data, *TRANSLATOR, *flags.split(), "--save-dir", tmp_path]
    if begins == "resumed":
        given += ["--restore-file", translator.checkpoint, "--max-update", 70]
    else:
        given += ["--finetune-from-model", translator.checkpoint, "--max-update", 1]
    done = attempt("fairseq-train", *given)
    sentence = f"the training has {flags.replace(' --', ' and --')}, but {translator.checkpoint} "
    sentence += f"was trained with {OTHERS[flags]}, so that it would"
    assert (sentence in done.stderr) == bool(OTHERS[flags])
    assert (done.returncode == 0) != bool(OTHERS[flags])


def test_other_options_on_purpose(translator, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMATTN_OTHER_OPTIONS", "1")
    flags = ["--abc-activation", "relu", "--finetune-from-model", translator.checkpoint]
    run(
        "fairseq-train",
        translator.data,
        *TRANSLATOR,
        *flags,
        "--max-update",
        1,
        "--save-dir",
        tmp_path,
    )
