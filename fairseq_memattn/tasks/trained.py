"""Options that must fit each other: those of training and of later commands, task and criterion."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from fairseq_memattn.errors import MemAttnError, flag

logger = logging.getLogger(__name__)


def other_options(
    trained: Any, now: Any, names: Iterable[str], later: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """A message for each option whose value differs from training, by name.

    trained: the options of training, without those that are not known; now: those of this command
    later: options that did not exist in all versions, and what these did
    """
    messages = {}
    past = dict(later or {}) if trained is not None else {}
    for name in [*names, *(later or {})]:
        before, after = getattr(trained, name, past.get(name)), getattr(now, name)
        if before is not None and before != after:
            messages[name] = (
                f"the model was trained with {flag(name)} {before}, but now it is {after}"
            )
    return messages


def warn_of_others(
    trained: Any, now: Any, names: Iterable[str], later: Mapping[str, Any] | None = None
) -> None:
    """Logs the messages of `other_options`."""
    for message in other_options(trained, now, names, later).values():
        logger.warning(message)


def check_criterion(cfg: Any, task: str, needed: str) -> None:
    """Raises MemAttnError for another criterion than the one that the task needs.

    cfg: the options of the criterion, as fairseq passes them to `build_criterion`
    """
    name = getattr(cfg, "_name", None) or getattr(cfg, "criterion", None)
    if name != needed:
        raise MemAttnError(f"--task {task} needs --criterion {needed}, but it is {name}")
