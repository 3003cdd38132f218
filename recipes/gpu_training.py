"""One training by fairseq, in this process or in one for each of its GPUs."""

import gc
import json
import logging
import statistics
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

# Imported before registration, which changes it: as by fairseq-train.
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed.utils import call_main, is_master
from fairseq.logging import metrics
from fairseq.trainer import Trainer

import fairseq_memattn

WARM_UP = 5  # updates that the speed leaves out, as far as others are left
LAST = 10  # updates, of which the training perplexity is


def train(
    flags: list[str], row: Path, seconds: float, updates: int | None, validates: bool
) -> None:
    """Trains for a time, and at most for so many updates, and writes what it measures to `row`.

    row: JSON, which has what there is, if an error or an alarm ends this
    """
    fairseq_memattn.register()
    args = options.parse_args_and_arch(options.get_training_parser(), flags)
    config = convert_namespace_to_omegaconf(args)
    call_main(config, _train, row=row, seconds=seconds, updates=updates, validates=validates)


def _train(config: Any, row: Path, seconds: float, updates: int | None, validates: bool) -> None:
    logging.disable()
    fairseq_memattn.register()  # in a process of its own, for one of two GPUs
    begin, found = time.monotonic(), dict[str, Any]()
    torch.manual_seed(config.common.seed)
    metrics.reset()
    task = tasks.setup_task(config.task)
    trainer = Trainer(
        config, task, task.build_model(config.model), task.build_criterion(config.criterion)
    )
    on_gpu = torch.cuda.is_available() and not config.common.cpu
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    speeds, losses = list[float](), list[float]()
    try:
        for samples in _batches(trainer):
            before = time.perf_counter()
            log = trainer.train_step(samples, raise_oom=True) or {}  # which waits for the GPU
            speeds.append(samples[0]["ntokens"] / (time.perf_counter() - before))
            losses.append(float(log.get("nll_loss", log.get("loss", "nan"))))
            if len(speeds) == updates or time.monotonic() - begin > seconds:
                break
        if validates:
            found["valid_ppl"] = _perplexity(trainer, task)
    finally:
        if speeds:
            found["updates"] = trainer.get_num_updates()
            found["words_per_second"] = statistics.median(speeds[min(WARM_UP, len(speeds) - 1) :])
            found["train_ppl"] = 2 ** statistics.mean(losses[-LAST:])
        if on_gpu:
            found["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
        if is_master(config.distributed_training):
            row.write_text(json.dumps(found))
        del trainer
        gc.collect()
        if on_gpu:
            torch.cuda.empty_cache()


def _batches(trainer: Trainer) -> Iterator[list[dict[str, Any]]]:
    """Of one epoch after another."""
    epoch = 1
    while True:
        iterator = trainer.get_train_iterator(epoch, load_dataset=epoch == 1)
        trainer.begin_epoch(epoch)
        for sample in iterator.next_epoch_itr(fix_batches_to_gpus=False):
            yield [sample]
        epoch += 1


def _perplexity(trainer: Trainer, task: Any) -> float:
    """Of the validation set."""
    task.load_dataset("valid")
    batches = trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False)
    with metrics.aggregate(new_root=True) as found:
        for sample in islice(batches, trainer.cfg.dataset.max_valid_steps):
            trainer.valid_step(sample)
    return float(found.get_smoothed_values()["ppl"])
