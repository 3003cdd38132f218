"""Checks of the values that fairseq's commands accept though they make no sense.

A wrong value ends a command with one sentence before any work, in place of a traceback, an endless
search, or a result that is wrong.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.util import find_spec
from typing import Any

from fairseq_memattn.errors import (
    LARGEST,
    MOST_LAYERS,
    MOST_VECTORS,
    MemAttnError,
    check_least,
    check_rate,
    flag,
    like,
    read_json_object,
)
from fairseq_memattn.host.correctness.model_options import check_model_options
from fairseq_memattn.host.correctness.paths import check_paths
from fairseq_memattn.host.correctness.trained_options import check_models
from fairseq_memattn.host.safety.literals import LiteralError, read_literal

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
        "validate_interval": 1,
        "validate_interval_updates": 0,
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
    "interactive": {"buffer_size": 0},
    "common": {"log_interval": 1},
    "eval_lm": {"context_window": 0},
    "optimization": {"max_epoch": 0, "max_update": 0, "clip_norm": 0},
    "checkpoint": {"save_interval": 1, "save_interval_updates": 0},
    "task": {"tokens_per_sample": 1, "max_source_positions": 1, "max_target_positions": 1},
    "lr_scheduler": {"warmup_updates": 0},
    "optimizer": {"weight_decay": 0, "adam_eps": 0},
}
MAXIMA = {"num_workers": 1024}  # of the others, LARGEST
SIZES = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
RATES = {
    "model": ("dropout", "attention_dropout", "activation_dropout", "pooler_dropout"),
    "criterion": ("label_smoothing",),
}
# What fairseq.data.data_utils.post_process knows.
SUBWORDS = (
    *("sentencepiece", "subword_nmt", "@@", "@@ ", "wordpiece", "letter", "silence", "_EOW"),
    "none",
)
# The schedules of the learning rate that --lr does not multiply.
OWN_RATES = ("manual", "pass_through", "triangular")
# The metrics that a task logs with an option, and the metrics that are best where they are highest.
ANSWERS = ("em", "f1", "precision", "recall")
EVALUATED = {"bleu": "eval_bleu"} | dict.fromkeys(ANSWERS, "eval_answers")
HIGHEST_IS_BEST = ("accuracy", "bleu", "em", "exact", "exact_match", "f1", "precision", "recall")
# The commands that only read a model, and so must be given one.
WITH_MODEL = ("generate", "interactive", "validate", "eval_lm")

logger = logging.getLogger(__name__)


def check_configurations() -> None:
    """Lets fairseq's commands check their configuration before they begin."""
    from fairseq import options
    from fairseq.distributed import utils
    from fairseq.tasks.language_modeling import LanguageModelingTask
    from fairseq_cli import generate

    options.parse_args_and_arch = _without_tpu(options.parse_args_and_arch)
    utils.call_main = _checked(utils.call_main)
    generate._main = _checked(generate._main)
    LanguageModelingTask.build_model = _language_model(LanguageModelingTask.build_model)


def check_configuration(cfg: Any) -> None:
    """Raises MemAttnError for the first option of a fairseq configuration that makes no sense."""
    for part, minima in MINIMA.items():
        for name, least in minima.items():
            if isinstance(getattr(cfg[part], name, None), int | float):
                check_least(cfg[part], name, least, MAXIMA.get(name, LARGEST))
    _check_shards(cfg.dataset)
    _check_search(cfg.generation)
    _check_each(cfg.optimization, "update_freq", 1)
    _check_each(cfg.optimization, "lr", 0)
    if not 0 <= cfg.common.seed < 2**32:
        raise MemAttnError(f"--seed must be from 0 to {2**32 - 1}, but is {cfg.common.seed}")
    _check_model(cfg.model)
    _check_masking(cfg.task)
    _check_subwords(cfg.common_eval.post_process)
    for part, names in RATES.items():
        for name in names:
            if isinstance(getattr(cfg[part], name, None), float | int):
                check_rate(cfg[part], name)


def check_training(cfg: Any) -> None:
    """Raises MemAttnError for options with which a training would fail later or begin anew."""
    import torch
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    common, checkpoint = cfg.common, cfg.checkpoint
    _check_registered(cfg, "task", TASK_REGISTRY)
    _check_registered(cfg, "model", {*ARCH_MODEL_REGISTRY, *MODEL_REGISTRY})
    for part, entry in REGISTRIES.items():
        _check_registered(cfg, part, entry["registry"])
    task = cfg.task._name
    is_own = TASK_REGISTRY[task].__module__.startswith("fairseq_memattn.")
    if cfg.dataset.combine_valid_subsets and is_own:
        raise MemAttnError(
            f"--combine-valid-subsets does not work with --task {task}; name the sets in "
            "--valid-subset, with commas between them"
        )
    _warn_of_rates(cfg)
    _warn_of_metric(checkpoint)
    check_model_options(cfg)
    if getattr(cfg.task, "data", "") is None:
        raise MemAttnError("task.data must be given: the folder that fairseq-preprocess writes")
    on_cpu = common.cpu or not torch.cuda.is_available()
    for name in ("fp16", "bf16"):
        efficient = f"memory_efficient_{name}"
        if on_cpu and common[name] and not common[efficient]:
            raise MemAttnError(f"--{name} needs a GPU; leave it out on a CPU")
    if common.tpu:
        raise MemAttnError("--tpu needs torch_xla, which this plugin does not work with")
    for name in ("restore_file", "finetune_from_model"):
        if _is_missing(checkpoint, name):
            raise MemAttnError(f"{flag(name)} {checkpoint[name]} does not exist")
    if checkpoint.write_checkpoints_asynchronously and find_spec("iopath") is None:
        raise MemAttnError("--write-checkpoints-asynchronously needs the package iopath")
    if getattr(cfg.task, "eval_bleu", False):
        for name in ("eval_bleu_args", "eval_bleu_detok_args"):
            read_json_object(flag(name), getattr(cfg.task, name) or "{}")
    metric = checkpoint.best_checkpoint_metric
    if metric in EVALUATED and not getattr(cfg.task, EVALUATED[metric], True):
        raise MemAttnError(f"--best-checkpoint-metric {metric} needs {flag(EVALUATED[metric])}")
    betas = getattr(cfg.optimizer, "adam_betas", None)
    if betas is not None and not _are_betas(betas):
        raise MemAttnError(f"--adam-betas must be two numbers from 0 to below 1, but is {betas}")


def _check_registered(cfg: Any, part: str, names: Collection[str]) -> None:
    options = getattr(cfg, part, None)
    if options is None:
        return
    name = getattr(options, "_name", None)
    if not name:
        raise MemAttnError(f"{part}._name must be given")
    if name not in names:
        raise MemAttnError(
            f"{part}._name must be registered with fairseq, but {name} is not{like(name, names)}"
        )


def _is_missing(checkpoint: Any, name: str) -> bool:
    """Whether a training begins with a file that does not exist. One that is resumed does not."""
    path, last = checkpoint[name], "checkpoint_last.pt"
    if path in (None, last) or "://" in path or os.path.exists(path):
        return False
    resumed = os.path.exists(os.path.join(checkpoint.save_dir, last))
    return name == "restore_file" or not resumed


def _are_betas(given: Any) -> bool:
    try:
        betas = read_literal(given) if isinstance(given, str) else given
    except LiteralError:
        return True  # the optimiser names the option and the text
    if not isinstance(betas, Sequence) or len(betas) != 2:
        return False
    return all(isinstance(beta, float | int) and 0 <= beta < 1 for beta in betas)


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


def _check_each(options: Any, name: str, least: int) -> None:
    values = getattr(options, name)
    if not all(math.isfinite(value) and value >= least for value in values):
        raise MemAttnError(f"{flag(name)} must be at least {least}, but is {list(values)}")


def _check_masking(task: Any) -> None:
    """The shares of tokens that fairseq's masked language modelling masks and leaves."""
    if not hasattr(task, "leave_unmasked_prob"):
        return
    for name in ("random_token_prob", "leave_unmasked_prob"):
        if not 0 <= task[name] <= 1:
            raise MemAttnError(f"{flag(name)} must be from 0 to 1, but is {task[name]}")
    if task.random_token_prob + task.leave_unmasked_prob > 1:
        raise MemAttnError(
            "--random-token-prob and --leave-unmasked-prob must be at most 1 together, but are "
            f"{task.random_token_prob} and {task.leave_unmasked_prob}"
        )
    if not 0 < task.mask_prob < 1:
        raise MemAttnError(f"--mask-prob must be above 0 and below 1, but is {task.mask_prob}")


def _check_subwords(name: str | None) -> None:
    if name is not None and name not in SUBWORDS:
        known = dict.fromkeys(subword.strip() for subword in SUBWORDS)
        raise MemAttnError(
            f"--remove-bpe must be one of {', '.join(known)}, but is {name}{like(name, known)}"
        )


def _warn_of_rates(cfg: Any) -> None:
    schedule = getattr(cfg.lr_scheduler, "_name", None)
    if not any(cfg.optimization.lr) and schedule not in OWN_RATES:
        logger.warning("--lr is 0: the training does not change the weights")


def _warn_of_metric(checkpoint: Any) -> None:
    metric = checkpoint.best_checkpoint_metric
    if metric in HIGHEST_IS_BEST and not checkpoint.maximize_best_checkpoint_metric:
        logger.warning(
            f"--best-checkpoint-metric {metric} keeps the checkpoint with the lowest {metric}; "
            "--maximize-best-checkpoint-metric keeps the one with the highest"
        )


def _check_model(model: Any) -> None:
    for side in ("encoder", "decoder"):
        for size in SIZES:
            name = f"{side}_{size}"
            if isinstance(getattr(model, name, None), int):
                check_least(model, name, 1, MOST_LAYERS if size == "layers" else MOST_VECTORS)
    for name in ("decoder_input_dim", "decoder_output_dim"):
        value = getattr(model, name, None)
        if isinstance(value, str) and not re.fullmatch(r"[1-9][0-9]*|\$\{.*\}", value):
            raise MemAttnError(f"{flag(name)} must be a number above 0, but is {value!r}")


def _checked(main: Callable[..., Any]) -> Callable[..., Any]:
    """`call_main(cfg, main)`, or the `_main` of fairseq-generate, which programs call directly."""

    @functools.wraps(main)
    def checked(cfg: Any, *args: Any, **kwargs: Any) -> Any:
        check_configuration(cfg)
        called = args[0] if args and callable(args[0]) else main
        command = called.__module__.removeprefix("fairseq_cli.")
        if command == "train":
            check_training(cfg)
        check_paths(cfg, command)
        if command in WITH_MODEL:
            _check_path(cfg.common_eval.path)
            check_models(cfg, command)
        if command == "eval_lm":
            _check_context(cfg.eval_lm.context_window, cfg.task)
        if command in WITH_MODEL:
            cfg.dataset.required_batch_size_multiple = 1  # a larger one leaves out the last batch
        return main(cfg, *args, **kwargs)

    return checked


def _without_tpu(parse: Callable[..., Any]) -> Callable[..., Any]:
    """`options.parse_args_and_arch`, where --bf16 does not imply --tpu, and so keeps the GPU."""

    @functools.wraps(parse)
    def parse_args(parser: Any, input_args: Any = None, *args: Any, **kwargs: Any) -> Any:
        parsed = parse(parser, input_args, *args, **kwargs)
        options = parsed[0] if isinstance(parsed, tuple) else parsed
        if "--tpu" not in (sys.argv if input_args is None else input_args):
            options.tpu = False
        return parsed

    return parse_args


def _check_context(window: int, task: Any) -> None:
    """The window is a part of each block that fairseq-eval-lm evaluates."""
    tokens = getattr(task, "tokens_per_sample", None)
    if tokens is not None and window >= tokens:
        raise MemAttnError(
            f"--context-window must be less than --tokens-per-sample {tokens}, but is {window}"
        )


def _check_path(path: str | None) -> None:
    if not path:
        raise MemAttnError("--path must be given: the checkpoint of the model")


def _language_model(build_model: Callable[..., Any]) -> Callable[..., Any]:
    """`LanguageModelingTask.build_model`, which fails on any other model."""

    @functools.wraps(build_model)
    def build_model_(self: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY

        name = getattr(args, "_name", None) or getattr(args, "arch", None)
        kind = ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)
        if kind is not None and not hasattr(kind, "supported_targets"):
            raise MemAttnError(
                f"--task language_modeling needs a language model, but {name} is not one"
            )
        return build_model(self, args, *rest, **kwargs)

    return build_model_
