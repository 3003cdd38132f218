"""Warnings of BLEU whose tokenizer does not split the references, in fairseq's commands.

fairseq computes BLEU in validation (--eval-bleu), and after generation with --scoring sacrebleu.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

logger = logging.getLogger(__name__)


def warn_of_tokenizers() -> None:
    """Lets fairseq's BLEU say when its tokenizer does not split the references into words."""
    from fairseq.scoring.bleu import SacrebleuScorer
    from fairseq.tasks.translation import TranslationTask

    TranslationTask._inference_with_bleu = _validation_checked(TranslationTask._inference_with_bleu)
    SacrebleuScorer.result_string = _scoring_checked(SacrebleuScorer.result_string)


def _validation_checked(inference: Callable[..., Any]) -> Callable[..., Any]:
    """`TranslationTask._inference_with_bleu`, which warns in the first batch of a task."""
    warned: WeakSet[Any] = WeakSet()

    @functools.wraps(inference)
    def _inference_with_bleu(task: Any, generator: Any, sample: Any, model: Any) -> Any:
        from fairseq_memattn.evaluation.tokenizers import tokenizer_warning

        if task not in warned and not task.cfg.eval_tokenized_bleu:
            warned.add(task)
            references = [task.tgt_dict.string(row) for row in sample["target"]]
            warning = tokenizer_warning(references, "13a", "`memattn score` the option --tokenize")
            if warning:
                logger.warning(f"--eval-bleu: {warning}")
        return inference(task, generator, sample, model)

    return _inference_with_bleu


def _scoring_checked(result_string: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(result_string)
    def warned(scorer: Any, *args: Any, **kwargs: Any) -> str:
        from fairseq_memattn.evaluation.tokenizers import tokenizer_warning

        if not scorer.cfg.sacrebleu_char_level:
            tokenizer = str(scorer.cfg.sacrebleu_tokenizer)
            warning = tokenizer_warning(scorer.ref, tokenizer, "--sacrebleu-tokenizer")
            if warning:
                logger.warning(f"--scoring sacrebleu: {warning}")
        return result_string(scorer, *args, **kwargs)

    return warned
