"""Errors and checkpoints of a training that fails, and checkpoints that cannot be written."""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_memattn.errors import MemAttnError

CRASH = "crash"  # the file that fairseq saves of a training that fails, without .pt
WAITS = (2.5, 2.5)  # seconds between the attempts to write a checkpoint, as in fairseq

logger = logging.getLogger(__name__)


def save_only_trained_models() -> None:
    """Lets fairseq save crash.pt only if there were updates, and name what it cannot write.

    fairseq saves the model of a training that fails as crash.pt in --save-dir.
    """
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    checkpoint_utils._torch_persistent_save = write_checkpoint
    Trainer.save_checkpoint = _unless_untrained(Trainer.save_checkpoint)


def explain_divergence() -> None:
    """Lets fairseq's trainer raise MemAttnError if the gradients of an update are not finite.

    fairseq then computes the loss once more to find the first layer with such values, in which it
    fails on an output that is a dictionary.
    """
    from fairseq.trainer import Trainer

    Trainer.train_step = _with_words(Trainer.train_step)


def explain_missing_metrics() -> None:
    """Lets fairseq-train name a --best-checkpoint-metric that validation does not log.

    fairseq fails on it in the first validation, before it has saved a checkpoint. Now it saves
    crash.pt first, unless --no-save is given.
    """
    for name in ("fairseq_cli.train", "__main__"):  # python -m fairseq_cli.train
        train: Any = sys.modules.get(name)
        if hasattr(train, "get_valid_stats"):
            train.get_valid_stats = _with_metric(train.get_valid_stats)


def _with_metric(get_valid_stats: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(get_valid_stats)
    def get_valid_stats_(cfg: Any, trainer: Any, stats: Any, *args: Any) -> Any:
        metric = cfg.checkpoint.best_checkpoint_metric
        if metric not in stats:
            if not cfg.checkpoint.no_save:
                _save_crash(cfg, trainer)
            raise MemAttnError(
                f"--best-checkpoint-metric must be a metric that validation logs, one of "
                f"{', '.join(stats)}, but is {metric}"
            )
        return get_valid_stats(cfg, trainer, stats, *args)

    return get_valid_stats_


def _save_crash(cfg: Any, trainer: Any) -> None:
    """As `checkpoint_utils.save_checkpoint`: all processes take part, and wait for the file."""
    from torch import distributed

    trainer.consolidate_optimizer()
    if trainer.should_save_checkpoint_on_current_rank:
        name = f"{CRASH}{trainer.checkpoint_suffix}.pt"
        trainer.save_checkpoint(os.path.join(cfg.checkpoint.save_dir, name), {})
    elif trainer.always_call_state_dict_during_save_checkpoint:
        trainer.state_dict()
    if distributed.is_initialized():
        distributed.barrier()


def _with_words(train_step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(train_step)
    def train_step_(self: Any, *args: Any, **kwargs: Any) -> Any:
        update = self.get_num_updates() + 1
        try:
            return train_step(self, *args, **kwargs)
        except Exception as error:
            for cause in (error, error.__context__):
                if isinstance(cause, FloatingPointError):
                    raise MemAttnError(divergence(str(cause), update)) from error
            raise

    return train_step_


def divergence(message: str, update: int) -> str:
    """What is told of a FloatingPointError of fairseq.

    fairseq says of several processes without finite gradients that they are inconsistent.
    """
    if "inconsistent" in message and not re.search(r"rank +\d+ = (nan|-?inf)", message):
        return message.partition("\n")[0]
    return (
        f"the gradients or the loss are NaN or infinite at update {update}; a smaller --lr or "
        "--clip-norm may help"
    )


def _unless_untrained(save_checkpoint: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(save_checkpoint)
    def save_checkpoint_(self: Any, filename: str, *args: Any, **kwargs: Any) -> None:
        crashed, updates = Path(filename).name.startswith(CRASH), self.get_num_updates()
        if crashed and updates == 0:
            return
        save_checkpoint(self, filename, *args, **kwargs)
        if crashed:
            logger.warning("the model after %d updates is in %s", updates, filename)

    return save_checkpoint_


def write_checkpoint(checkpoint: Any, file: Any) -> None:
    """`checkpoint_utils._torch_persistent_save`, which logs a traceback if the disk is full.

    Raises MemAttnError, which names file and folder, if the third attempt fails. Then it removes
    what is written.
    """
    import torch

    for wait in (*WAITS, None):
        try:
            return torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:
            if wait is None:
                _give_up(Path(file.name), error)
            else:
                file.seek(0)
                file.truncate()
                time.sleep(wait)


def _give_up(path: Path, error: Exception) -> None:
    if path.suffix == ".tmp" and path.is_file():
        os.unlink(path)
    reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    raise MemAttnError(
        f"{path.name.removesuffix('.tmp')} cannot be written in the folder "
        f"{path.absolute().parent}: {reason}"
    ) from error
