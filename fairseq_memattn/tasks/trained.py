"""Differences between the options of training and those of a command that uses the model."""

import logging
from collections.abc import Iterable
from typing import Any

from fairseq_memattn.errors import flag

logger = logging.getLogger(__name__)


def other_options(trained: Any, now: Any, names: Iterable[str]) -> dict[str, str]:
    """A message for each option whose value differs from training, by name.

    trained: the options of training, without those that are not known; now: those of this command
    """
    messages = {}
    for name in names:
        before, after = getattr(trained, name, None), getattr(now, name)
        if before is not None and before != after:
            messages[name] = (
                f"the model was trained with {flag(name)} {before}, but now it is {after}"
            )
    return messages


def warn_of_others(trained: Any, now: Any, names: Iterable[str]) -> None:
    """Logs the messages of `other_options`."""
    for message in other_options(trained, now, names).values():
        logger.warning(message)
