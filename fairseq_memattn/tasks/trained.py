"""What a model was trained with, and what it is used with."""

import logging
from collections.abc import Iterable
from typing import Any

from fairseq_memattn.errors import flag

logger = logging.getLogger(__name__)


def warn_of_others(trained: Any, now: Any, names: Iterable[str]) -> None:
    """Logs which options of a task, by name, are not those of training.

    trained: the options of training, which lack what is not known; now: those of this command
    """
    for name in names:
        before, after = getattr(trained, name, None), getattr(now, name)
        if before is not None and before != after:
            logger.warning(
                f"the model was trained with {flag(name)} {before}, but now it is {after}"
            )
