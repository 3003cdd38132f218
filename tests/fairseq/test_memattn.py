"""The memattn command on a trained model: score."""

import pytest
import sacrebleu
from harness import PLUGGED, lines_of, run


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
