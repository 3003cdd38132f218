"""Values of options with which fairseq's commands succeed, and the result is lost or wrong."""

import logging
import math
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from typing import Any

from fairseq_memattn.errors import MOST_LAYERS, MOST_VECTORS, MemAttnError, flag
from fairseq_memattn.host.correctness.trained_options import check_model_options, check_models
from fairseq_memattn.host.correctness.training import train_alone
from fairseq_memattn.host.safety.literals import LiteralError, read_literal

BELOW_ONE = math.nextafter(1, 0)
RATE = (0, BELOW_ONE)
# The limits of options, by the part of fairseq's configuration, each with what is beyond them.
LIMITS: dict[Any, dict[str, tuple[float, float]]] = {
    "dataset": {
        "required_batch_size_multiple": (1, math.inf),  # the process is killed
        "num_workers": (-math.inf, 1024),  # the machine is
        "shard_id": (0, math.inf),  # the last shard is evaluated
        "validate_interval": (1, math.inf),  # fails after an epoch, before it is saved
    },
    "checkpoint": {"save_interval": (1, math.inf)},  # fails after an epoch, before it is saved
    "generation": {"nbest": (1, math.inf)},  # translations are left out
    "optimization": {"max_epoch": (0, math.inf), "lr": (0, math.inf)},  # nothing is trained
    "optimizer": {"adam_betas": RATE},
    "criterion": {"label_smoothing": RATE},
    "model": {
        **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), RATE),
        "pooler_dropout": RATE,
        # a model without layers, or more memory than there is
        **dict.fromkeys(("encoder_layers", "decoder_layers"), (1, MOST_LAYERS)),
        **dict.fromkeys(("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"), (1, MOST_VECTORS)),
    },
}
# The metrics that are best where they are highest.
HIGHEST_IS_BEST = {"accuracy", "bleu", "chrf", "d_bleu", "em", "exact", "exact_match", "f1"}
HIGHEST_IS_BEST |= {"precision", "recall"}
# The options of a search that a command does not read, and the command that does.
UNREAD = {
    "generate": ("interactive", ["constraints"]),
    "interactive": ("generate", ["lm_path", "prefix_size"]),
}
LAYERS_TO_KEEP = ("encoder_layers_to_keep", "decoder_layers_to_keep")
# The commands that only read a model.
WITH_MODEL = ("generate", "interactive", "validate", "eval_lm")

logger = logging.getLogger(__name__)


def check_first(call: Callable[..., Any], cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """Options that lose a result, and a second training in a `--save-dir`, are errors.

    For `call_main(cfg, main)`, and for the `_main` of fairseq-generate, which programs call
    directly. A command that reads a model keeps the last batch of a data set.
    """
    check_configuration(cfg)
    called = args[0] if args and callable(args[0]) else call
    command = called.__module__.removeprefix("fairseq_cli.")
    if command == "train":
        check_training(cfg)
        args = (partial(train_alone, called), *args[1:])
    if command in ("generate", "interactive"):
        check_search(cfg, command)
    if command in WITH_MODEL:
        check_models(cfg, command)
        cfg.dataset.required_batch_size_multiple = 1  # a larger one leaves out the last batch
    return call(cfg, *args, **kwargs)


def check_search(cfg: Any, command: str) -> None:
    """Adds the --print-alignment that --replace-unk needs.

    Raises MemAttnError for options that the command does not read, for those with which alignments
    cannot be printed, and for those with which the source has other words than tokens, so that a
    wrong one would be copied.
    """
    search = cfg.generation
    other, names = UNREAD[command]
    for name in names:
        if getattr(search, name, None):
            raise MemAttnError(f"{flag(name)} works in fairseq-{other} only")
    if search.replace_unk is not None:
        if command == "generate" and getattr(cfg.task, "dataset_impl", None) != "raw":
            raise MemAttnError("--replace-unk needs the text of the data, with --dataset-impl raw")
        parts = {"bpe": cfg.bpe, "tokenizer": cfg.tokenizer}
        if command == "interactive":
            parts = {"post_process": cfg.common_eval.post_process}
        for name, value in parts.items():
            if value is not None:
                raise MemAttnError(
                    f"--replace-unk does not work with {flag(name)} in fairseq-{command}, where "
                    "the words of the source are then not its tokens"
                )
        search.print_alignment = search.print_alignment or "hard"
    if search.print_alignment == "soft" and (
        command == "interactive" or search.score_reference or search.replace_unk is not None
    ):
        raise MemAttnError(
            "--print-alignment soft works in fairseq-generate only, without --score-reference and "
            "--replace-unk; leave out `soft`"
        )


def keep_later_options(overwrite: Callable[..., Any], cfg: Any, overrides: Any) -> Any:
    """Options that a checkpoint's task did not have yet are not left out.

    fairseq-validate would evaluate as if they were not given.
    """
    from fairseq.tasks import TASK_DATACLASS_REGISTRY
    from omegaconf import DictConfig, open_dict

    task = cfg.get("task")
    has_fields = isinstance(task, DictConfig)  # a task without a dataclass has a Namespace
    known = TASK_DATACLASS_REGISTRY.get(task.get("_name")) if has_fields else None
    for name in known.__dataclass_fields__ if known else ():
        if name in (overrides or {}) and name not in task:
            with open_dict(task):
                task[name] = overrides[name]
    return overwrite(cfg, overrides)


def forget_embedding_files(load: Callable[..., Any], path: str, *args: Any, **kwargs: Any) -> Any:
    """`--encoder-embed-path` of a checkpoint's training is not read again.

    It and --decoder-embed-path are for the begin of a training: a checkpoint has the weights, and
    the files may be on another machine.
    """
    state = load(path, *args, **kwargs)
    model = (state.get("cfg") or {}).get("model") or state.get("args")
    options: Any = vars(model) if isinstance(model, Namespace) else model or {}
    for side in ("encoder", "decoder"):
        stack = options[side] if side in options else {}  # noqa: SIM401, struct refuses get
        for part, name in ((options, f"{side}_embed_path"), (stack, "embed_path")):
            if isinstance(part, Mapping) and name in part:
                part[name] = None  # type: ignore[index]
    return state


def parse_options(
    parse: Callable[..., Any], parser: Any, input_args: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """`--bf16` does not add `--tpu`; `--encoder-layers-to-keep` stays text.

    fairseq's models split the latter, also where its dataclass has a list. With --tpu the GPU is
    not used.

    Raises MemAttnError for a training without --arch, and for what the task refuses in a search,
    before fairseq asks for data or models that such an option needs.
    """
    from fairseq.tasks import TASK_REGISTRY

    try:
        parsed = parse(parser, input_args, *args, **kwargs)
    except RuntimeError as error:
        if error.args:
            raise
        raise MemAttnError("--arch is missing; memattn archs lists the architectures") from None
    options = parsed[0] if isinstance(parsed, tuple) else parsed
    if "--tpu" not in (sys.argv if input_args is None else input_args):
        options.tpu = False
    for name in LAYERS_TO_KEEP:
        if isinstance(kept := getattr(options, name, None), list):
            setattr(options, name, ",".join(map(str, kept)))
    task = TASK_REGISTRY.get(getattr(options, "task", None))
    if hasattr(task, "check_generation"):
        task.check_generation(options)
    return parsed


def prune_each_side(prune: Callable[..., Any], state_dict: dict[str, Any], model_cfg: Any) -> Any:
    """`--encoder-layers-to-keep` keeps the other side's layers.

    fairseq leaves them out. It also prunes what a training with the option has saved once more: a
    side with just as many layers as are named has been pruned.
    """
    from omegaconf import DictConfig, open_dict

    kept = {name: getattr(model_cfg, name, None) for name in LAYERS_TO_KEEP}
    for name, text in kept.items() if any(kept.values()) else ():
        pattern = re.compile(rf"{name.partition('_')[0]}\..*?\blayers\.(\d+)\.")
        numbers = {found[1] for key in state_dict if (found := pattern.match(key))}
        if numbers and (not text or len(text.split(",")) == len(numbers)):
            with open_dict(model_cfg) if isinstance(model_cfg, DictConfig) else nullcontext():
                setattr(model_cfg, name, ",".join(numbers))
    return prune(state_dict, model_cfg)


def check_configuration(cfg: Any) -> None:
    """Raises MemAttnError for the first option that is not finite, or outside of its LIMITS."""
    for part in cfg:
        for name, value in _numbers(cfg[part]):
            least, most = LIMITS.get(part, {}).get(name, (-math.inf, math.inf))
            if not math.isfinite(value) or not least <= value <= most:
                raise MemAttnError(f"{flag(name)} must be {_range(least, most)}, but is {value}")
    search = cfg.generation
    if search.nbest > search.beam:
        raise MemAttnError(f"--nbest must be at most --beam {search.beam}, but is {search.nbest}")


def _numbers(options: Any) -> Iterator[tuple[str, float]]:
    """The names and values of the options that are numbers, or lists of numbers."""
    from omegaconf import DictConfig, OmegaConf

    values: Any = OmegaConf.to_container(options) if isinstance(options, DictConfig) else options
    values = vars(values) if isinstance(values, Namespace) else values
    for name, given in values.items() if isinstance(values, Mapping) else ():
        if name == "adam_betas" and isinstance(given, str):
            with suppress(LiteralError):  # the optimiser names the option and the text
                given = read_literal(given)
        for value in given if isinstance(given, list | tuple) else [given]:
            if isinstance(value, int | float):
                yield name, value


def _range(least: float, most: float) -> str:
    if (least, most) == RATE:
        return "at least 0 and below 1"
    if most == math.inf:
        return "a finite number" if least == -math.inf else f"at least {least}"
    return f"at most {most}" if least == -math.inf else f"from {least} to {most}"


def check_training(cfg: Any) -> None:
    """Raises MemAttnError for options with which a training would begin anew or not be saved."""
    from fairseq.tasks import TASK_REGISTRY

    checkpoint, task = cfg.checkpoint, TASK_REGISTRY.get(cfg.task._name)
    metric, resumed = checkpoint.best_checkpoint_metric, checkpoint.restore_file
    if metric in HIGHEST_IS_BEST and not checkpoint.maximize_best_checkpoint_metric:
        logger.warning(
            f"--best-checkpoint-metric {metric} keeps the checkpoint with the lowest {metric}; "
            "--maximize-best-checkpoint-metric keeps the one with the highest"
        )
    check_model_options(cfg)
    is_own = getattr(task, "__module__", "").startswith("fairseq_memattn.")
    if cfg.dataset.combine_valid_subsets and is_own:
        raise MemAttnError(
            f"--combine-valid-subsets leaves out splits with --task {cfg.task._name}; name them in "
            "--valid-subset, with commas between them"
        )
    # Without the file, fairseq would begin anew.
    named = resumed != "checkpoint_last.pt" and "://" not in resumed
    if named and not os.path.exists(resumed):
        raise MemAttnError(f"--restore-file {resumed} does not exist")
    if checkpoint.write_checkpoints_asynchronously and find_spec("iopath") is None:
        raise MemAttnError("--write-checkpoints-asynchronously needs the package iopath")
