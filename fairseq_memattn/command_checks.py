"""Checks of the values that fairseq's commands accept though they make no sense.

A wrong value ends a command with one sentence before any work, in place of a traceback, an endless
search, or a result that is wrong.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from fairseq_memattn.errors import MemAttnError, check_least, flag

# The options of the parts of fairseq's configuration that have a minimum.
MINIMA = {
    "dataset": {
        "num_workers": 0,
        "max_tokens": 1,
        "batch_size": 1,
        "max_tokens_valid": 1,
        "batch_size_valid": 1,
        "required_batch_size_multiple": 1,
        "required_seq_len_multiple": 1,
        "num_shards": 1,
        "shard_id": 0,
    },
    "generation": {
        "beam": 1,
        "nbest": 1,
        "min_len": 0,
        "max_len_b": 0,
        "max_len_a": 0,
        "prefix_size": 0,
        "no_repeat_ngram_size": 0,
    },
    "common": {"log_interval": 1},
    "eval_lm": {"context_window": 0},
    "optimization": {"max_epoch": 0, "max_update": 0, "clip_norm": 0},
    "checkpoint": {"save_interval": 1, "save_interval_updates": 0},
}
SIZES = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "pooler_dropout")


def check_fairseq_commands() -> None:
    """Lets fairseq's commands check their configuration before they begin."""
    from fairseq.distributed import utils
    from fairseq.tasks.language_modeling import LanguageModelingTask
    from fairseq_cli import generate

    utils.call_main = _checked(utils.call_main)
    generate._main = _checked(generate._main)
    dataloader = _evaluate_something(LanguageModelingTask.eval_lm_dataloader)
    LanguageModelingTask.eval_lm_dataloader = dataloader


def check_configuration(cfg: Any) -> None:
    """Raises MemAttnError for the first option of a fairseq configuration that makes no sense."""
    for part, minima in MINIMA.items():
        for name, least in minima.items():
            if getattr(cfg[part], name, None) is not None:
                _check_finite(cfg[part], name)
                check_least(cfg[part], name, least)
    _check_shards(cfg.dataset)
    _check_search(cfg.generation)
    if any(updates < 1 for updates in cfg.optimization.update_freq):
        raise MemAttnError(
            f"--update-freq must be at least 1, but is {cfg.optimization.update_freq}"
        )
    if not 0 <= cfg.common.seed < 2**32:
        raise MemAttnError(f"--seed must be from 0 to {2**32 - 1}, but is {cfg.common.seed}")
    if cfg.model is not None:
        _check_model(cfg.model)


def _check_shards(dataset: Any) -> None:
    shards, shard = dataset.num_shards, dataset.shard_id
    if not shard < shards:
        raise MemAttnError(
            f"--shard-id must be from 0 to {shards - 1} with --num-shards {shards}, but is {shard}"
        )


def _check_search(search: Any) -> None:
    for name in ("lenpen", "unkpen", "temperature", "sampling_topp", "diverse_beam_strength"):
        _check_finite(search, name)
    if search.temperature <= 0:
        raise MemAttnError(f"--temperature must be above 0, but is {search.temperature}")
    if search.nbest > search.beam:
        raise MemAttnError(f"--nbest must be at most --beam {search.beam}, but is {search.nbest}")


def _check_finite(options: Any, name: str) -> None:
    if not math.isfinite(getattr(options, name)):
        raise MemAttnError(f"{flag(name)} must be a finite number, but is {getattr(options, name)}")


def _check_model(model: Any) -> None:
    for side in ("encoder", "decoder"):
        for size in SIZES:
            name = f"{side}_{size}"
            if isinstance(getattr(model, name, None), int):
                check_least(model, name, 1)
    for name in DROPOUTS:
        rate = getattr(model, name, None)
        if isinstance(rate, float | int) and not 0 <= rate < 1:
            raise MemAttnError(f"{flag(name)} must be at least 0 and below 1, but is {rate}")


def _checked(main: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(main)
    def checked(cfg: Any, *args: Any, **kwargs: Any) -> Any:
        check_configuration(cfg)
        return main(cfg, *args, **kwargs)

    return checked


def _evaluate_something(dataloader: Callable[..., Any]) -> Callable[..., Any]:
    """`LanguageModelingTask.eval_lm_dataloader`, which leaves out what is too long for the model.

    If that is everything, fairseq-eval-lm reports a perplexity of 1.
    """

    @functools.wraps(dataloader)
    def eval_lm_dataloader(*args: Any, **kwargs: Any) -> Any:
        batches = dataloader(*args, **kwargs)
        if not len(batches):
            limit = kwargs.get("max_positions")
            raise MemAttnError(
                "there is nothing to evaluate: each block has more tokens than the model's maximum "
                f"of {limit}; give --tokens-per-sample {limit} or less"
            )
        return batches

    return eval_lm_dataloader
