"""What a folder records of a task that translates, for `DocumentTranslator`."""

from dataclasses import asdict
from typing import Any

from fairseq.tasks.translation import TranslationTask
from transformers import PreTrainedModel

from fairseq_memattn.tasks.document_translation import DocumentTranslationTask
from fairseq_memattn.transformers.translation_settings import TranslationSettings


def set_translation(converted: PreTrainedModel, model: Any, task: Any) -> None:
    """Adds `translation` to the configuration, if the task is one that translates.

    model: of fairseq; converted: the same model of transformers
    """
    if type(task) not in (TranslationTask, DocumentTranslationTask):
        return
    cfg = task.cfg
    limits = zip(task.max_positions(), model.max_positions(), strict=True)
    settings = dict(zip(("max_source", "max_target"), map(min, limits), strict=True))
    settings |= {"source_context": 0, "target_context": 0}
    if isinstance(task, DocumentTranslationTask):
        settings |= {
            "source_context": cfg.source_context,
            "target_context": cfg.target_context,
            "separator": cfg.context_separator,
            "as_sequences": task.takes_sequences,
        }
    converted.config.translation = asdict(TranslationSettings(**settings))
