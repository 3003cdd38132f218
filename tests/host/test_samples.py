"""Every sample is evaluated; what is left out elsewhere is counted, or ends a command."""

import re

import pytest
from harness import PLUGGED, TRANSLATOR, attempt, hypotheses, lines_of, logged, run

SHORT = ["--max-source-positions", 5, "--max-target-positions", 1024]
SKIP = "--skip-invalid-size-inputs-valid-test"


def assert_refused(done, *words):
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert all(word in last for word in words), last
    assert "Traceback" not in done.stdout + done.stderr


def generate(translator, *flags, attempt=attempt):
    path = ["--path", translator.checkpoint]
    return attempt("fairseq-generate", translator.data, *PLUGGED, *path, *flags)


def test_every_sentence_is_translated(translator, corpus):
    multiple = ["--required-batch-size-multiple", 8, "--batch-size", 16, "--max-len-b", 3]
    done = generate(translator, *multiple, attempt=run)
    assert len(hypotheses(done.stdout)) == len(lines_of(corpus / "test.en"))
    assert "leaves out" not in done.stdout + done.stderr


def test_every_sentence_is_validated(translator, corpus):
    flags = ["--path", translator.checkpoint, "--task", "translation", "--batch-size", 16]
    flags += ["--valid-subset", "test", "--log-format", "json", "--required-batch-size-multiple"]
    ones, eights = (
        run("fairseq-validate", translator.data, *PLUGGED, *flags, multiple).stdout
        for multiple in (1, 8)
    )
    assert logged(ones, "test")[-1]["test_loss"] == logged(eights, "test")[-1]["test_loss"]


def test_training_counts_what_a_multiple_leaves_out(bilingual, corpus, tmp_path):
    flags = [*TRANSLATOR, "--required-batch-size-multiple", 8, "--max-tokens", 200]
    done = run("fairseq-train", bilingual, *flags, "--max-update", 1, "--save-dir", tmp_path)
    omitted = re.findall(r"leaves out the last batch, (\d+) of (\d+) samples", done.stdout)
    assert [total for _, total in omitted] == [str(len(lines_of(corpus / "train.en")))]
    assert 0 < int(omitted[0][0]) < 200
    assert "'required_batch_size_multiple': 8" in done.stdout


def test_sentences_that_are_too_long(translator):
    words = ["samples are longer than the limit of 5 source and 1024 target tokens; the longest is"]
    assert_refused(generate(translator, *SHORT), *words, SKIP)
    done = generate(translator, *SHORT, SKIP, attempt=run)
    counted = re.search(r"(\d+) of (\d+) samples are longer .*; they are left out", done.stdout)
    assert int(counted[2]) - int(counted[1]) == len(hypotheses(done.stdout))


def test_a_long_line_of_input(translator):
    """The next line is translated."""
    flags = ["--path", translator.checkpoint, "--max-source-positions", 9, SKIP]
    text = "a " * 20 + "\nLife goes on.\n"
    done = run("fairseq-interactive", translator.data, *PLUGGED, *flags, stdin=text)
    assert list(hypotheses(done.stdout)) == [1]
    assert "1 of 1 samples are longer than the limit of 9 source and 1024" in done.stdout


def without_targets(split, data, folder):
    folder.mkdir()
    for file in data.iterdir():
        if not file.name.startswith(f"{split}.en-ru.ru"):
            (folder / file.name).symlink_to(file)
    return folder


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_split_without_targets(split, bilingual, tmp_path):
    """Also a second split of the validation, which comes after an epoch."""
    data = without_targets(split, bilingual, tmp_path / "data")
    flags = [*TRANSLATOR, "--valid-subset", "valid,test", "--save-dir", tmp_path / "saved"]
    done = attempt("fairseq-train", data, *flags)
    assert_refused(done, f"the split {split} must have target sentences, but its target file is")
    assert not list((tmp_path / "saved").glob("*"))
