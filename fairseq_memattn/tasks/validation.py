"""Scores that validation logs: BLEU and chrF (--eval-bleu), exact match and F1."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
from fairseq.data import encoders  # noqa: F401  (registers the tokenizers)
from fairseq.data.data_utils import post_process
from fairseq.dataclass.configs import GenerationConfig
from fairseq.logging import metrics
from fairseq.registry import REGISTRIES
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.chrf import CHRF

from fairseq_memattn.errors import MemAttnError, like, read_json_object
from fairseq_memattn.evaluation.scores import build_bleu
from fairseq_memattn.qa.answer_scores import score_answer, total
from fairseq_memattn.qa.question_sets import Record

KINDS = {int: "a whole number", float: "a number", bool: "true or false"}
# The measures of --eval-bleu by their names in the log, and how many of sacreBLEU's statistics each
# has. These are summed over batches and processes; fairseq sums those of processes by their places.
TEXT_MEASURES = {"bleu": 10, "chrf": 18, "d_bleu": 10}
STATISTICS = [f"_{name}_{n}" for name, count in TEXT_MEASURES.items() for n in range(count)]
Texts = tuple[Sequence[str], Sequence[str]]  # hypotheses and references


def check_options(cfg: Any) -> None:
    """Raises MemAttnError for options of --eval-bleu that would fail in the first validation."""
    known = sorted(REGISTRIES["tokenizer"]["registry"])
    if cfg.eval_bleu_detok not in known:
        raise MemAttnError(
            f"--eval-bleu-detok must be one of {', '.join(known)}, but is {cfg.eval_bleu_detok}"
        )
    try:
        post_process("", cfg.eval_bleu_remove_bpe)
    except NotImplementedError:
        raise MemAttnError(
            "--eval-bleu-remove-bpe must be sentencepiece, subword_nmt, @@, wordpiece or letter, "
            f"but is {cfg.eval_bleu_remove_bpe}"
        ) from None
    text_metrics(cfg)
    read_json_object("--eval-bleu-detok-args", cfg.eval_bleu_detok_args)
    _check_search(read_json_object("--eval-bleu-args", cfg.eval_bleu_args))


def _check_search(options: dict[str, Any]) -> None:
    """Raises MemAttnError for unknown options of the search, and for values of a wrong type."""
    known: dict[str, Any] = {field.name: field.type for field in fields(GenerationConfig)}
    for name, value in options.items():
        if name not in known:
            raise MemAttnError(
                f"--eval-bleu-args has {name!r}, which fairseq-generate does not have"
                f"{like(name, known)}"
            )
        wanted = known[name]
        # Not isinstance: in Python, bool is a subclass of int.
        accepted = {int: (int,), float: (int, float), bool: (bool,)}.get(wanted)
        if accepted and type(value) not in accepted:
            raise MemAttnError(
                f"--eval-bleu-args: {name} must be {KINDS[wanted]}, but is {json.dumps(value)}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise MemAttnError(f"--eval-bleu-args: {name} must be a finite number, but is {value}")
    minima = {"beam": 1, "nbest": 1, "max_len_a": 0, "max_len_b": 0, "min_len": 0}
    for name, limit in minima.items():
        if options.get(name, limit) < limit:
            raise MemAttnError(
                f"--eval-bleu-args: {name} must be at least {limit}, but is {options[name]}"
            )
    if options.get("temperature", 1) <= 0:
        raise MemAttnError(
            f"--eval-bleu-args: temperature must be above 0, but is {options['temperature']}"
        )


def tokenizer(cfg: Any) -> str:
    """The name of sacreBLEU's tokenizer."""
    return "none" if cfg.eval_tokenized_bleu else str(cfg.eval_bleu_tokenizer)


def text_metrics(cfg: Any) -> dict[str, Metric]:
    """The metrics of TEXT_MEASURES, those of `memattn score`.

    Raises MemAttnError for a tokenizer that sacreBLEU does not have or cannot load.
    """
    try:
        bleu = build_bleu(tokenizer(cfg), option="--eval-bleu-tokenizer")
    except ValueError as error:
        raise MemAttnError(str(error)) from None
    return {"bleu": bleu, "chrf": CHRF(), "d_bleu": bleu}


def text_statistics(
    measures: Mapping[str, Metric], sentences: Texts, documents: Texts
) -> dict[str, float]:
    """sacreBLEU's statistics of a batch, by STATISTICS.

    measures: of `text_metrics`; documents: the joined sentences of those that end in the batch
    """
    numbers: list[float] = []
    for name, metric in measures.items():
        hypotheses, references = documents if name == "d_bleu" else sentences
        found = [[0.0] * TEXT_MEASURES[name]]
        if hypotheses:
            found = metric._extract_corpus_statistics(hypotheses, [references])
        numbers += np.sum(found, axis=0).tolist()
    return dict(zip(STATISTICS, numbers, strict=True))


def log_texts(measures: Mapping[str, Metric], logging_outputs: Sequence[Mapping[str, Any]]) -> None:
    """Logs the measures of a validation from the statistics of its batches."""
    if not any(STATISTICS[0] in log for log in logging_outputs):
        return
    for name, count in TEXT_MEASURES.items():
        keys = [f"_{name}_{n}" for n in range(count)]
        sums = [float(sum(log.get(key, 0) for log in logging_outputs)) for key in keys]
        metrics.log_scalar(f"_{name}", np.array(sums))
        metrics.log_derived(name, partial(_score, measures[name], f"_{name}"))


def _score(metric: Metric, key: str, meters: Mapping[str, Any]) -> float:
    return round(float(metric._compute_score_from_stats(meters[key].sum.tolist()).score), 2)


COUNT = "_answers"
# The name in the log of each of `answer_scores.Score`'s measures, in its order.
MEASURES = ("em", "f1", "precision", "recall")


def statistics(predictions: Sequence[str], records: Sequence[Record]) -> dict[str, float]:
    """The number of questions of a batch, which can be 0, and the sum of each measure."""
    scores = [
        score_answer(text, record.answers, record.rules)
        for text, record in zip(predictions, records, strict=True)
    ]
    sums = {f"_{name}": value for name, value in zip(MEASURES, total(scores), strict=True)}
    return sums | {COUNT: len(scores)}


def log_scores(logging_outputs: Sequence[Mapping[str, Any]]) -> None:
    """Logs the measures of the batches of a validation, in percent."""
    if not any(log.get(COUNT) for log in logging_outputs):
        return
    for key in (COUNT, *(f"_{name}" for name in MEASURES)):
        metrics.log_scalar(key, float(sum(log.get(key, 0) for log in logging_outputs)))
    for name in MEASURES:
        metrics.log_derived(
            name, lambda log, key=f"_{name}": round(100 * log[key].sum / log[COUNT].sum, 3)
        )
