"""Trainings that fail or have ended, and checkpoints that cannot be written."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_memattn.errors import MemAttnError

CRASH = "crash"  # the file that fairseq saves of a training that fails, without .pt
WAITS = (2.5, 2.5)  # seconds between the attempts to write a checkpoint, as in fairseq

logger = logging.getLogger(__name__)


def save_before_missing_metric(
    get_valid_stats: Callable[..., Any], cfg: Any, trainer: Any, stats: Any, *args: Any
) -> Any:
    """`train.get_valid_stats`, which saves crash.pt if --best-checkpoint-metric is not logged.

    fairseq fails on it in the first validation, before it has saved a checkpoint.
    """
    metric = cfg.checkpoint.best_checkpoint_metric
    if metric not in stats:
        if not cfg.checkpoint.no_save:
            _save_crash(cfg, trainer)
        raise MemAttnError(
            f"--best-checkpoint-metric must be a metric that validation logs, one of "
            f"{', '.join(stats)}, but is {metric}"
        )
    return get_valid_stats(cfg, trainer, stats, *args)


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


def save_trained_only(
    save_checkpoint: Callable[..., None], self: Any, filename: str, *args: Any, **kwargs: Any
) -> None:
    """`Trainer.save_checkpoint`, which replaces no crash.pt by a model without an update."""
    crashed, updates = Path(filename).name.startswith(CRASH), self.get_num_updates()
    if crashed and updates == 0:
        return
    save_checkpoint(self, filename, *args, **kwargs)
    if crashed:
        logger.warning("the model after %d updates is in %s", updates, filename)


def write_again(save: Callable[..., None], checkpoint: Any, file: Any) -> None:
    """`checkpoint_utils._torch_persistent_save`, whose next attempt begins the file anew.

    fairseq writes it after what the one before has written. Raises MemAttnError, which names file
    and folder, if the third attempt fails. Then it removes what is written.
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
    return None


def _give_up(path: Path, error: Exception) -> None:
    if path.suffix == ".tmp" and path.is_file():
        os.unlink(path)
    reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    raise MemAttnError(
        f"{path.name.removesuffix('.tmp')} cannot be written in the folder "
        f"{path.absolute().parent}: {reason}"
    ) from error


def stop_finished(
    load_checkpoint: Callable[..., Any], cfg: Any, trainer: Any, *args: Any, **kwargs: Any
) -> Any:
    """`checkpoint_utils.load_checkpoint`, after which a finished training trains nothing.

    fairseq compares the updates with --max-update after an update, so that it makes one more and
    saves the result.
    """
    loaded = load_checkpoint(cfg, trainer, *args, **kwargs)
    options, updates = trainer.cfg.optimization, trainer.get_num_updates()
    if 0 < options.max_update <= updates:
        options.max_epoch = -1  # which fairseq reads next; it trains no epoch above this one
        if trainer.is_data_parallel_master:
            logger.warning(
                "the training has reached %d updates, and --max-update is %d: nothing is trained",
                updates,
                options.max_update,
            )
    return loaded
