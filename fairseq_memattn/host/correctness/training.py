"""Trainings that fail, are resumed or have ended, and checkpoints that cannot be written."""

import logging
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import locked, reason

CRASH = "crash"  # the file that fairseq saves of a training that fails, without .pt
PATIENCE = "patience"  # of a checkpoint's extra state: what fairseq keeps of --patience, below
WAITED = ("best", "num_runs")
WAITS = (2.5, 2.5)  # seconds between the attempts to write a checkpoint, as in fairseq

logger = logging.getLogger(__name__)


def save_before_missing_metric(
    get_valid_stats: Callable[..., Any], cfg: Any, trainer: Any, stats: Any, *args: Any
) -> Any:
    """A model is saved before an unknown `--best-checkpoint-metric` fails.

    fairseq fails on it in the first validation, before it has saved a checkpoint. The model is in
    crash.pt.
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
    save_checkpoint: Callable[..., Any], self: Any, filename: str, extra_state: Any
) -> Any:
    """A training that fails before its first update replaces no crash.pt.

    The checkpoint holds for how many validations --patience has waited.
    """
    crashed, updates = Path(filename).name.startswith(CRASH), self.get_num_updates()
    if crashed and updates == 0:
        return None
    waited = vars(_should_stop())
    extra_state[PATIENCE] = {name: waited[name] for name in WAITED if name in waited}
    saved = save_checkpoint(self, filename, extra_state)
    if crashed:
        logger.warning("the model after %d updates is in %s", updates, filename)
    return saved


def write_again(save: Callable[..., None], checkpoint: Any, file: Any) -> None:
    """A second attempt to write a checkpoint replaces the first.

    fairseq writes it after what the one before has written.
    """
    import torch

    for wait in WAITS:
        try:
            return torch.save(checkpoint, file)
        except (OSError, RuntimeError):
            file.seek(0)
            file.truncate()
            time.sleep(wait)
    return torch.save(checkpoint, file)


def name_unwritten(
    save: Callable[..., None], checkpoint: Any, filename: str, **options: Any
) -> None:
    """A checkpoint that cannot be written is named, and leaves nothing.

    Raises MemAttnError, which names file and folder.
    """
    try:
        save(checkpoint, filename, **options)
    except (OSError, RuntimeError) as error:
        Path(f"{filename}.tmp").unlink(missing_ok=True)
        path = Path(filename).absolute()
        raise MemAttnError(
            f"{path.name} cannot be written in the folder {path.parent}: {reason(error)}"
        ) from error


def resume(
    load_checkpoint: Callable[..., Any], cfg: Any, trainer: Any, *args: Any, **kwargs: Any
) -> Any:
    """A resumed training goes on as it was, up to `--max-update`.

    fairseq compares the updates with --max-update after an update, so that a finished training
    makes one more and saves the result. --patience counts anew. The best loss is that of
    --restore-file even where it was measured on other data, and checkpoint_best.pt is never saved.
    """
    from fairseq import checkpoint_utils

    extra_state, batches = load_checkpoint(cfg, trainer, *args, **kwargs)
    if extra_state is not None and not cfg.reset_meters:
        vars(_should_stop()).update(extra_state.get(PATIENCE, {}))
    best = Path(cfg.save_dir, f"checkpoint_best{trainer.checkpoint_suffix}.pt")
    saved = vars(checkpoint_utils.save_checkpoint)
    if "best" in saved and not best.exists():
        del saved["best"]
    options, updates = trainer.cfg.optimization, trainer.get_num_updates()
    if 0 < options.max_update <= updates:
        options.max_epoch = -1  # which fairseq reads next; it trains no epoch above this one
        if trainer.is_data_parallel_master:
            logger.warning(
                "the training has reached %d updates, and --max-update is %d: nothing is trained",
                updates,
                options.max_update,
            )
    return extra_state, batches


def train_alone(main: Callable[..., None], cfg: Any, **kwargs: Any) -> None:
    """`train.main` that holds the lock of --save-dir in the first of its processes.

    Raises MemAttnError if another training writes there.
    """
    folder = Path(cfg.checkpoint.save_dir)
    held: AbstractContextManager[None] = nullcontext()
    if not cfg.checkpoint.no_save and cfg.distributed_training.distributed_rank == 0:
        held = locked(folder / ".lock", f"another training is writing to --save-dir {folder}")
    with held:
        main(cfg, **kwargs)


def _should_stop() -> Any:
    """The function of fairseq-train that counts validations, as its attributes."""
    for name in ("__main__", "fairseq_cli.train"):
        if hasattr(sys.modules.get(name), "should_stop_early"):
            return sys.modules[name].should_stop_early
    return Namespace()


def keep_as_many(
    save_checkpoint: Callable[..., Any], cfg: Any, trainer: Any, batches: Any, loss: float | None
) -> Any:
    """`--keep-best-checkpoints` keeps as many as it says.

    fairseq saves no checkpoint that is worse than the worst it keeps, even while it keeps fewer.
    """
    import numpy as np
    from fairseq.data.data_utils import numpy_seed
    from fairseq.file_io import PathManager

    saved = save_checkpoint(cfg, trainer, batches, loss)
    count = cfg.keep_best_checkpoints
    if saved and loss is not None and count > 0:
        with numpy_seed(batches.epoch, trainer.get_num_updates(), loss):  # as fairseq's name has it
            digit = np.random.randint(0, count)
        start = f"checkpoint.best_{cfg.best_checkpoint_metric}_"
        kept = [path.name for path in Path(cfg.save_dir).glob(f"{start}*.pt")]
        name = f"{start}{loss:.3f}{digit}{trainer.checkpoint_suffix}.pt"
        if len(kept) < count and name not in kept:
            PathManager.copy(saved, os.path.join(cfg.save_dir, name), overwrite=True)
    return saved
