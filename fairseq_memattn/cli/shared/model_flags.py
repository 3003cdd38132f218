"""The flags by which fairseq-train builds a model again."""

import argparse
import re
import shlex
from dataclasses import MISSING, fields
from typing import Any

from fairseq_memattn.errors import flag

# Groups of fairseq's configuration that say how a model was trained, with fixed options.
FIXED = ("common", "dataset", "optimization", "checkpoint", "distributed_training", "ema")
CHOICES = ("criterion", "optimizer", "lr_scheduler")
# What depends on the machine and its paths, and not on the training.
LOCAL = {
    *("data", "user_dir", "save_dir", "restore_file", "tensorboard_logdir", "wandb_project"),
    *("aim_repo", "azureml_logging", "log_file", "log_format", "log_interval", "no_progress_bar"),
    *("cpu", "num_workers", "num_workers_valid", "device_id", "distributed_init_method"),
    *("distributed_num_procs", "nprocs_per_node", "plasma_path"),
}


def model_flags(arch: str, args: Any, left_out: tuple[str, ...] = ("max_positions",)) -> list[str]:
    """`--arch` and the flags whose values differ from the architecture's defaults.

    args: all options of a model, by name; left_out: by default --max-positions, as the task sets it
    """
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    kind = ARCH_MODEL_REGISTRY[arch]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    kind.add_args(parser)
    configs = (vars(base).get("__dataclass") for base in kind.__mro__)
    config = next(filter(None, configs), None)
    if config:  # fairseq's parser lacks its defaults, which hold where the architecture has none
        parser.set_defaults(**{entry.name: _default(entry) for entry in fields(config)})
    actions = [action for action in parser._actions if action.dest not in left_out]
    wanted = {action.dest: getattr(args, action.dest, None) for action in actions}
    chosen: dict[str, Any] = {}
    while True:
        # Some defaults are the values of other options: one is chosen at a time.
        defaults = argparse.Namespace(**chosen)
        ARCH_CONFIG_REGISTRY[arch](defaults)
        others = (
            action.dest
            for action in actions
            if action.dest not in chosen
            and wanted[action.dest] is not None
            and wanted[action.dest] != getattr(defaults, action.dest, action.default)
        )
        other = next(others, None)
        if other is None:
            break
        chosen[other] = wanted[other]
    flags = ["--arch", arch]
    for action in actions:
        if action.dest not in chosen:
            continue
        value, option = chosen[action.dest], max(action.option_strings, key=len)
        if action.nargs != 0:
            flags += [option, str(value)]
        elif value == action.const:
            flags.append(option)
    return flags


def training_flags(arch: str, cfg: Any) -> list[str]:
    """The flags of fairseq-train whose values are not the defaults, each with its value.

    cfg: the configuration in a checkpoint
    """
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    groups = [(_values(cfg, name), FairseqConfig.__dataclass_fields__[name].type) for name in FIXED]
    options = _values(cfg, "model")
    for name in ("encoder", "decoder", "quant_noise"):  # of fairseq's transformer in YAML
        if isinstance(options.get(name), dict):
            options |= {f"{name}_{key}": value for key, value in options[name].items()}
    flags = [shlex.join(model_flags(arch, argparse.Namespace(**options), left_out=()))]
    registries = {name: REGISTRIES[name]["dataclass_registry"] for name in CHOICES}
    for name, registry in {"task": TASK_DATACLASS_REGISTRY, **registries}.items():
        values = _values(cfg, name)
        chosen = values.get("_name")
        if chosen:
            flags.append(f"{flag(name)} {chosen}")
            groups.append((values, registry.get(chosen)))
    for values, config in groups:
        flags += _other_than_defaults(values, config, cfg) if config else []
    return list(dict.fromkeys(flags))


def _values(cfg: Any, group: str) -> dict[str, Any]:
    """The options of a group; a group that is a name alone has no others."""
    from omegaconf import OmegaConf

    values: Any = cfg.get(group)
    if isinstance(values, str):
        return {"_name": values}
    if OmegaConf.is_config(values):
        values = OmegaConf.to_container(values, resolve=True, enum_to_str=True)
    return dict(vars(values) if isinstance(values, argparse.Namespace) else values or {})


def _other_than_defaults(values: dict[str, Any], config: Any, cfg: Any) -> list[str]:
    flags = []
    for entry in fields(config):
        value = values.get(entry.name)
        default = _resolved(_default(entry), cfg)
        value = ",".join(map(str, value)) if isinstance(value, list) else value
        if entry.name in LOCAL or entry.name == "_name" or value is None:
            continue
        if value == default or _plain(value) == _plain(default):
            continue
        option = [flag(entry.name), str(value)]
        flags.append(option[0] if value is True else shlex.join(option))
    return flags


def _default(entry: Any) -> Any:
    """The default of a field of a dataclass, of an enumeration its value."""
    default = entry.default if entry.default_factory is MISSING else entry.default_factory()
    return getattr(default, "value", default)


def _resolved(default: Any, cfg: Any) -> Any:
    """The value of another option, for a default such as ${optimization.max_update}."""
    other = re.fullmatch(r"\$\{(\w+)\.(\w+)\}", default) if isinstance(default, str) else None
    return _values(cfg, other[1]).get(other[2]) if other else default


def _plain(value: Any) -> str:
    """A value without the brackets and spaces of a list or a tuple."""
    return str(value).strip("()[]").replace(" ", "")
