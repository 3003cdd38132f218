"""Commands that encode sentences themselves refuse tasks that put more than eos around them."""

import pytest
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask
from harness import TRANSLATOR, attempt, generate, hypotheses, train

from fairseq_memattn.cli.shared.models import check_plain_inputs
from fairseq_memattn.tasks.document_translation import DocumentTranslationTask
from fairseq_memattn.tasks.question_answering import QuestionAnsweringTask

TASK = "translation_multi_simple_epoch"
PAIRS = "--lang-pairs en-ru,ru-en --langs en,ru --decoder-langtok --encoder-langtok tgt"
MANY = f"--task {TASK} {PAIRS}"
SAID = f"trained with --task {TASK}, which may put tokens of its own around sentences"


def test_tasks():
    task = object.__new__(TranslationMultiSimpleEpochTask)
    task.args = task.cfg = type("Options", (), {"task": TASK})
    with pytest.raises(ValueError, match=f"--path m.pt: {SAID}"):
        check_plain_inputs("m.pt", task)
    for plain in (DocumentTranslationTask, QuestionAnsweringTask):
        check_plain_inputs("m.pt", object.__new__(plain))


@pytest.mark.full
def test_commands(bilingual, tmp_path):
    """Two pairs with one vocabulary, in fairseq's own task."""
    sampling = ["--sampling-method", "temperature", "--sampling-temperature", 1.5]
    model = train(
        bilingual, tmp_path / "m", *TRANSLATOR, *MANY.split(), *sampling, "--max-update", 1
    )
    for source, target in (("en", "ru"), ("ru", "en")):
        search = ["-s", source, "-t", target, "--beam", 1, "--max-len-b", 3]
        assert len(hypotheses(generate(model, *MANY.split(), *search))) == 34
    exported = ["--path", model.checkpoint, "--data", bilingual, "--output", tmp_path / "out"]
    aligned = [bilingual, "--path", model.checkpoint, "--cpu", "--subset", "test"]
    for command, given in {
        "export": [*exported, "--tokenizer", "words"],
        "cxmi": aligned,
    }.items():
        done = attempt("memattn", command, *given)
        assert done.returncode == 1 and SAID in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
