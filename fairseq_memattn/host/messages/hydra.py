"""fairseq-hydra-train checks a configuration before the training, as fairseq-train does."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from fairseq_memattn.errors import MemAttnError


@functools.cache
def check_before_training() -> None:
    """Lets fairseq-hydra-train import `common.user_dir` before it starts the training.

    fairseq imports it within the training, after the place where the plugin checks the
    configuration. A second call does nothing.
    """
    from fairseq_cli import hydra_train

    hydra_train._hydra_main = _with_user_dir(hydra_train._hydra_main)


def _with_user_dir(main: Callable[..., Any]) -> Callable[..., Any]:
    from fairseq.utils import import_user_module

    @functools.wraps(main)
    def with_user_dir(cfg: Any, **kwargs: Any) -> Any:
        import_user_module(cfg.common)
        try:
            return main(cfg, **kwargs)
        except MemAttnError as error:
            raise MemAttnError(in_keys(str(error), cfg)) from error

    return with_user_dir


def in_keys(message: str, cfg: Any) -> str:
    """A message with keys of the configuration in place of the arguments of a command line.

    An option remains if no part of the configuration sets it, or several do.
    """
    from omegaconf import OmegaConf

    parts: Any = OmegaConf.to_container(cfg)

    def key(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        having = [part for part in parts if _is_set(parts[part], name)]
        return f"{having[0]}.{name}" if len(having) == 1 else option[0]

    message = re.sub(r"(?<![\w-])--([a-z][a-z0-9-]*)", key, message)
    return re.sub(r"^the data folder", "task.data", message)


def _is_set(part: Any, name: str) -> bool:
    """Whether a part of the configuration has the key, and not the value of another key."""
    return isinstance(part, dict) and name in part and not str(part[name]).startswith("${")
