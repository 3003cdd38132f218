"""Checks of options against those that a model has, and that a checkpoint was trained with."""

import logging
import os
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairseq_memattn.errors import MemAttnError, flag, like
from fairseq_memattn.host.checkpoints import check_registered
from fairseq_memattn.host.correctness.same_model import check_trained_options, part
from fairseq_memattn.host.safety.literals import LiteralError, read_literal

logger = logging.getLogger(__name__)


def check_models(cfg: Any, command: str) -> None:
    """Compares the options of a command that reads a model with those of its checkpoints.

    fairseq-eval-lm takes --tokens-per-sample from the checkpoint unless it is given. Other
    languages than those of the training are a warning.

    command: the name of the module in fairseq_cli

    Raises MemAttnError for a name in --model-overrides that is no option of the checkpoint.
    """
    overrides = _overrides(cfg.common_eval.model_overrides)
    given = any(word.partition("=")[0] == "--tokens-per-sample" for word in sys.argv)
    for path in split_paths(cfg.common_eval.path):
        saved = saved_options(path)
        if not saved:
            continue
        check_registered(path, {"cfg": saved})  # fairseq's error for others is an IndexError
        _check_overrides(overrides, path, saved)
        trained = part(saved.get("task"))
        _warn_of_dictionaries(path, trained, cfg.task)
        if command == "eval_lm":
            if not given and isinstance(trained.get("tokens_per_sample"), int):
                cfg.task.tokens_per_sample = trained["tokens_per_sample"]
        elif hasattr(cfg.task, "source_lang") and "source_lang" in trained:
            _warn_of_languages(cfg.task, path, trained, command)


def _overrides(text: str) -> Mapping[str, Any]:
    try:
        overrides = read_literal(text)
    except LiteralError as error:
        raise LiteralError(f"--model-overrides: {error}") from None
    if not isinstance(overrides, dict):
        raise MemAttnError(
            f"--model-overrides must be a dictionary, such as {{'dropout': 0.1}}, but is {text}"
        )
    return overrides


def saved_options(path: str) -> Mapping[str, Any]:
    """The configuration in a checkpoint; nothing if it has none or cannot be read.

    The file is mapped into memory, so that its tensors are not read.
    """
    return _saved(path).get("cfg") or {}


def _saved(path: str) -> Mapping[str, Any]:
    import torch

    with suppress(Exception):  # which has words of its own when the model is loaded
        state: Mapping[str, Any] = torch.load(
            path, map_location="cpu", weights_only=True, mmap=True
        )
        return state
    return {}


def _check_overrides(overrides: Mapping[str, Any], path: str, saved: Mapping[str, Any]) -> None:
    known = {*saved, *_names(saved)}
    for name in overrides:
        if name not in known:
            raise MemAttnError(
                f"--model-overrides names {name}, which is no option of {path}{like(name, known)}"
            )


def _names(saved: Mapping[str, Any]) -> Iterator[str]:
    """The options of all parts of a configuration, and those of its model that it does not set."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    for options in saved.values():
        yield from part(options)
    kind = ARCH_MODEL_REGISTRY.get(part(saved.get("model")).get("_name"))
    if kind is not None:
        yield from option_types(kind)


def _warn_of_languages(task: Any, path: str, trained: Mapping[str, Any], command: str) -> None:
    """Where no languages are given, fairseq takes those in the names of the files.

    It does not save those, so that the names of the files of the training are read again.
    fairseq-validate takes the languages of the checkpoint.
    """
    now = _languages(task.source_lang, task.target_lang, task.data)
    if command == "validate" and not (task.source_lang and task.target_lang):
        return
    before = _languages(*(trained.get(name) for name in ("source_lang", "target_lang", "data")))
    before = before or _languages(None, None, task.data)
    if now and before and now != before:
        logger.warning(
            "--source-lang and --target-lang are %s and %s, but %s was trained from %s to %s",
            *now,
            path,
            *before,
        )


def _languages(source: str | None, target: str | None, data: str | None) -> list[str]:
    """The given languages, or those in the names of the files of the data; else nothing."""
    if source and target:
        return [source, target]
    folders = split_paths(data)
    return language_pair(folders[0]) if folders else []


def other_dictionaries(path: str, trained: Any, data: str | None) -> list[str]:
    """A sentence for each dictionary of `data` whose symbols differ from those of the training.

    The weights fit every dictionary of the same size. The folder that the training read may have
    changed since, or have moved, so that this is no error.

    path: of the checkpoint; trained: the options of its task
    """
    recorded, now = (split_paths(one) for one in (part(trained).get("data"), data))
    if not recorded or not now:
        return []
    return [
        f"{file} has other symbols than {other}, with which {path} was trained: if the model has "
        "not read this dictionary, it takes every token for another"
        for file in sorted(Path(now[0]).glob("dict*.txt"))
        if (other := Path(recorded[0], file.name)).is_file() and _symbols(file) != _symbols(other)
    ]


def _warn_of_dictionaries(path: str, trained: Any, task: Any) -> None:
    for text in other_dictionaries(path, trained, getattr(task, "data", None)):
        logger.warning(text)


def _symbols(dictionary: Path) -> list[bytes]:
    """The lines of fairseq's dictionary without their counts."""
    return [line.rpartition(b" ")[0] for line in dictionary.read_bytes().splitlines()]


def _begun(state: Mapping[str, Any]) -> bool:
    """Whether updates led to a checkpoint: an imported one has none, and nothing to resume."""
    place = state["extra_state"]["train_iterator"]
    return (place.get("epoch", 1), place.get("iterations_in_epoch", 0)) > (1, 0)


def check_beginning(
    load_checkpoint: Any,
    trainer: Any,
    filename: str,
    reset_optimizer: bool = False,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Options that change what the weights mean are an error, other symbols a warning."""
    state = _saved(filename)
    if state:
        if not reset_optimizer and _begun(state) and state.get("last_optimizer_state") is None:
            raise MemAttnError(
                f"{filename} has no state of the optimizer, so that no training can be resumed; "
                "--finetune-from-model begins a new one with its weights"
            )
        check_trained_options(filename, state, trainer, further=reset_optimizer)
    loaded = load_checkpoint(trainer, filename, reset_optimizer, *args, **kwargs)
    if loaded is not None:
        _warn_of_dictionaries(filename, (state.get("cfg") or {}).get("task"), trainer.cfg.task)
    return loaded


def split_paths(paths: str | None) -> list[str]:
    """The local paths of an option that takes several."""
    if not isinstance(paths, str) or "://" in paths:
        return []
    return [path for path in paths.split(os.pathsep) if path]


def language_pair(folder: str) -> list[str]:
    """The languages in the name of the first file that has two; nothing if none has."""
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        parts = name.split(".")
        if len(parts) >= 3 and len(parts[1].split("-")) == 2:
            return parts[1].split("-")
    return []


def check_model_options(cfg: Any) -> None:
    """Raises MemAttnError for an option that the model does not have, or that must be a number."""
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY

    model = cfg.model
    name = str(getattr(model, "_name", ""))
    kind = ARCH_MODEL_REGISTRY.get(name)
    if kind is None or name in MODEL_DATACLASS_REGISTRY or not isinstance(model, Mapping):
        return
    types = option_types(kind)
    defaults = _completed(name)
    known = {"_name", *types, *defaults, *cfg.task}
    for option, value in model.items():
        if option not in known:
            raise MemAttnError(f"model.{option} is no option of {name}{like(option, known)}")
        if value is None:
            value = _completed(name, **{option: None}).get(option)
        wanted = _values(types.get(option), defaults.get(option))
        may_be_none = defaults.get(option) is None
        if wanted and not (isinstance(value, int | float) or (value is None and may_be_none)):
            raise MemAttnError(f"{flag(option)} must be {wanted}, but is {value!r}")


def option_types(kind: Any) -> dict[str, Any]:
    """The options of the command line of a model's class, and the functions that read them."""
    parser = ArgumentParser(argument_default=SUPPRESS, add_help=False)
    kind.add_args(parser)
    return {action.dest: action.type for action in parser._actions}


def _completed(name: str, **options: Any) -> dict[str, Any]:
    """Options with the defaults of an architecture."""
    from fairseq.models import ARCH_CONFIG_REGISTRY

    completed = Namespace(**options)
    ARCH_CONFIG_REGISTRY[name](completed)
    return vars(completed)


def _values(kind: Any, default: Any) -> str:
    """The values that an option takes, or nothing if they are neither numbers nor booleans."""
    if isinstance(default, bool):
        return "true or false"
    return "a number" if kind in (int, float) or isinstance(default, int | float) else ""
