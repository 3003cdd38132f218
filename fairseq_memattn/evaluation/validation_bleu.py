"""BLEU in validation, as fairseq's --eval-bleu gathers it batch by batch."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from fairseq.data import encoders  # noqa: F401  (registers the tokenizers)
from fairseq.logging import metrics
from fairseq.registry import REGISTRIES
from fairseq.tasks.translation import EVAL_BLEU_ORDER
from sacrebleu.metrics import BLEU

from fairseq_memattn.errors import MemAttnError

LENGTHS = ("_bleu_sys_len", "_bleu_ref_len")
BY_ORDER = ("_bleu_counts", "_bleu_totals")
# What a batch logs, and what is summed up over batches and processes.
STATISTICS = [*LENGTHS, *(f"{kind}_{n}" for kind in BY_ORDER for n in range(EVAL_BLEU_ORDER))]


def check_options(cfg: Any) -> None:
    """Raises MemAttnError for --eval-bleu options that would only fail after the training data."""
    known = sorted(REGISTRIES["tokenizer"]["registry"])
    if cfg.eval_bleu_detok not in known:
        raise MemAttnError(
            f"--eval-bleu-detok must be one of {', '.join(known)}, but is {cfg.eval_bleu_detok}"
        )
    for name in ("eval_bleu_args", "eval_bleu_detok_args"):
        value = getattr(cfg, name)
        try:
            fits = isinstance(json.loads(value), dict)
        except ValueError:
            fits = False
        if not fits:
            flag = "--" + name.replace("_", "-")
            raise MemAttnError(f'{flag} must be JSON such as {{"beam": 5}}, but is {value!r}')


def log_bleu(logging_outputs: Sequence[Mapping[str, Any]]) -> None:
    """Adds batches to the BLEU of a validation.

    fairseq's own leaves out batches whose translations are all empty, and with them the length of
    their references; where there are no others it has no BLEU at all.
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
