"""What a training leaves behind that fails: fairseq saves the model as crash.pt in --save-dir."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


def save_only_trained_models() -> None:
    """Lets fairseq save crash.pt only if there were updates, and say so."""
    from fairseq.trainer import Trainer

    Trainer.save_checkpoint = _unless_untrained(Trainer.save_checkpoint)


def _unless_untrained(save_checkpoint: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(save_checkpoint)
    def save_checkpoint_(self: Any, filename: str, *args: Any, **kwargs: Any) -> None:
        crashed, updates = Path(filename).name == "crash.pt", self.get_num_updates()
        if crashed and updates == 0:
            return
        save_checkpoint(self, filename, *args, **kwargs)
        if crashed:
            logger.warning("the model after %d updates is in %s", updates, filename)

    return save_checkpoint_
