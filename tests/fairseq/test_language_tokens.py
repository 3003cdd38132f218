"""Commands that encode sentences themselves refuse tasks that put more than eos around them."""

import pytest
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

from fairseq_memattn.cli.shared.models import check_plain_inputs
from fairseq_memattn.tasks.document_translation import DocumentTranslationTask
from fairseq_memattn.tasks.question_answering import QuestionAnsweringTask

TASK = "translation_multi_simple_epoch"
SAID = f"trained with --task {TASK}, which may put tokens of its own around sentences"


def test_tasks():
    task = object.__new__(TranslationMultiSimpleEpochTask)
    task.args = task.cfg = type("Options", (), {"task": TASK})
    with pytest.raises(ValueError, match=f"--path m.pt: {SAID}"):
        check_plain_inputs("m.pt", task)
    for plain in (DocumentTranslationTask, QuestionAnsweringTask):
        check_plain_inputs("m.pt", object.__new__(plain))
