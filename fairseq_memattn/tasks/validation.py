"""Scores that validation logs: BLEU (--eval-bleu), exact match and F1."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from fairseq.data import encoders  # noqa: F401  (registers the tokenizers)
from fairseq.data.data_utils import post_process
from fairseq.dataclass.configs import GenerationConfig
from fairseq.logging import metrics
from fairseq.registry import REGISTRIES
from fairseq.tasks.translation import EVAL_BLEU_ORDER
from sacrebleu.metrics import BLEU

from fairseq_memattn.errors import MemAttnError, like, read_json_object
from fairseq_memattn.qa.answer_scores import score_answer, total
from fairseq_memattn.qa.question_sets import Record

KINDS = {int: "a whole number", float: "a number", bool: "true or false"}
LENGTHS = ("_bleu_sys_len", "_bleu_ref_len")
BY_ORDER = ("_bleu_counts", "_bleu_totals")
# The statistics that a batch logs, which are summed over batches and processes. fairseq sums those
# of processes by their places: the order is that of its `valid_step`.
STATISTICS = [*LENGTHS, *(f"{kind}_{n}" for n in range(EVAL_BLEU_ORDER) for kind in BY_ORDER)]


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


def log_bleu(logging_outputs: Sequence[Mapping[str, Any]]) -> None:
    """Logs the BLEU of a validation from the statistics of its batches.

    fairseq's implementation leaves out batches in which all translations are empty, with the
    lengths of their references. If all batches are such, it logs no BLEU.
    """
    if not any(LENGTHS[0] in log for log in logging_outputs):
        return
    sums = {key: float(sum(log.get(key, 0) for log in logging_outputs)) for key in STATISTICS}
    for key in LENGTHS:
        metrics.log_scalar(key, sums[key])
    for kind in BY_ORDER:
        by_order = [sums[f"{kind}_{order}"] for order in range(EVAL_BLEU_ORDER)]
        metrics.log_scalar(kind, np.array(by_order))
    metrics.log_derived("bleu", _bleu)


def _bleu(meters: Mapping[str, Any]) -> float:
    counts, totals = (meters[kind].sum.astype(int).tolist() for kind in BY_ORDER)
    system, reference = (int(meters[key].sum) for key in LENGTHS)
    bleu = BLEU.compute_bleu(counts, totals, system, reference, smooth_method="exp")
    return round(bleu.score, 2)


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
