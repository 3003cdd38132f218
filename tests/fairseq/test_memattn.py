"""The memattn command on a trained model: score and plot."""

import pytest
import sacrebleu
from harness import PLUGGED, attempt, lines_of, run


@pytest.fixture(scope="module")
def generated(translator, tmp_path_factory):
    done = run(
        "fairseq-generate",
        translator.data,
        *PLUGGED,
        *("--path", translator.checkpoint, "--required-batch-size-multiple", 1),
    )
    path = tmp_path_factory.mktemp("score") / "generated.txt"
    path.write_text(done.stdout, encoding="utf-8")
    return path


def test_score_is_sacrebleu_with_its_signature(generated, corpus, tmp_path):
    reference, output = corpus / "test.ru", tmp_path / "hypotheses.ru"
    done = run(
        "memattn", "score", "--generated", generated, "--reference", reference, "--output", output
    )
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    for metric, printed in zip((bleu, chrf), done.stdout.splitlines(), strict=True):
        score = metric.corpus_score(lines_of(output), [lines_of(reference)])
        assert printed == score.format(width=2, signature=str(metric.get_signature()))
        assert f"version:{sacrebleu.__version__}" in printed


def test_score_refuses_another_number_of_references(generated, corpus):
    done = attempt("memattn", "score", "--generated", generated, "--reference", corpus / "train.ru")
    assert done.returncode == 1
    assert "were expected" in done.stderr
    assert "Traceback" not in done.stderr


def test_plot_draws_a_picture(translator, tmp_path):
    picture = tmp_path / "memory.png"
    run("memattn", "plot", translator.data, "--path", translator.checkpoint, "--output", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--index", "9999"], "--index must be from 0 to"),
        (["--layer", "7"], "--layer must be below the 2 layers, but is 7"),
        (["--head", "2"], "--head must be from 0 to 1, but is 2"),
    ],
)
def test_plot_refuses(translator, tmp_path, flags, message):
    done = attempt(
        "memattn", "plot", translator.data, "--path", translator.checkpoint,
        "--output", tmp_path / "memory.png", *flags,
    )  # fmt: skip
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        ("nowhere", None, "nowhere: there is no such folder"),
        (None, "no.pt", "--path no.pt: there is no such file"),
    ],
)
def test_plot_names_what_is_missing(data, path, message, translator, tmp_path):
    output = ["--output", tmp_path / "memory.png"]
    given = [data or translator.data, "--path", path or translator.checkpoint]
    done = attempt("memattn", "plot", *given, *output)
    assert done.stderr.splitlines()[-1] == f"memattn plot: error: {message}"
