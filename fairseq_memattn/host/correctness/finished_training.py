"""A training that has reached --max-update before it begins, as one that is resumed may have."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)


def stop_finished(load_checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    """`checkpoint_utils.load_checkpoint`, after which a finished training trains nothing.

    fairseq compares the updates with --max-update after an update, so that it makes one more and
    saves the result.
    """

    @functools.wraps(load_checkpoint)
    def load_checkpoint_(cfg: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        loaded = load_checkpoint(cfg, trainer, *args, **kwargs)
        options, updates = trainer.cfg.optimization, trainer.get_num_updates()
        if 0 < options.max_update <= updates:
            options.max_epoch = -1  # which fairseq reads next; it trains no epoch above this one
            if trainer.is_data_parallel_master:
                logger.warning(
                    "the training has reached %d updates, and --max-update is %d: nothing is "
                    "trained",
                    updates,
                    options.max_update,
                )
        return loaded

    return load_checkpoint_
