"""What fairseq needs to train, validate and generate in several processes."""

import logging
import os
from collections.abc import Callable
from typing import Any

from fairseq_memattn.errors import MemAttnError

logger = logging.getLogger(__name__)


def broadcast_plain_values(
    broadcast: Callable[..., Any], obj: Any, *args: Any, **kwargs: Any
) -> Any:
    """Processes send a checkpoint as plain values.

    fairseq reads what is sent with torch.load, which refuses the mark that fairseq puts in the
    place of a tensor and the configuration that it makes of the checkpoint's `cfg`. The mark is
    allowed, and the configuration is sent as the plain values it consists of.
    """
    import torch
    from fairseq.distributed import utils
    from omegaconf import DictConfig, OmegaConf

    torch.serialization.add_safe_globals([utils._TensorPlaceholder])
    if isinstance(obj, dict) and isinstance(obj.get("cfg"), DictConfig):
        obj = {**obj, "cfg": OmegaConf.to_container(obj["cfg"], enum_to_str=True)}
    return broadcast(obj, *args, **kwargs)


def gather_without_gpu(
    gather: Callable[..., Any], data: Any, group: Any = None, max_size: int = 0
) -> list[Any]:
    """Processes report without a GPU.

    fairseq's own way needs one, and refuses more than `max_size` bytes; torch's does not.
    """
    from fairseq import utils
    from fairseq.distributed.utils import get_global_group, get_world_size
    from torch import distributed

    group = get_global_group() if group is None else group
    gathered: list[Any] = [None] * get_world_size(group)
    distributed.all_gather_object(gathered, utils.move_to_cpu(data), group)
    return gathered


def join_torchrun(
    call_main: Callable[..., None], cfg: Any, main: Callable[..., None], **kwargs: Any
) -> None:
    """torchrun's processes train together on a CPU too.

    fairseq counts GPUs to find out how many processes there are, so that without one each process
    of torchrun would train a copy of its own.
    """
    import torch

    processes = int(os.environ.get("WORLD_SIZE", "1"))
    without_gpu = cfg.common.cpu or not torch.cuda.is_available()
    if without_gpu and processes > 1 and "RANK" in os.environ:
        _use_gloo(cfg.distributed_training, processes, int(os.environ["RANK"]))
    training = cfg.distributed_training
    if without_gpu and training.distributed_init_method and not training.distributed_no_spawn:
        raise MemAttnError(
            "--distributed-init-method starts a process for each GPU, but there is none; start "
            "the processes with torchrun"
        )
    call_main(cfg, main, **kwargs)


def _use_gloo(training: Any, processes: int, rank: int) -> None:
    """Sets fairseq's options of distributed training for one of torchrun's processes on a CPU."""
    if training.distributed_init_method not in (None, "env://"):
        return  # the command names another way to find the other processes
    training.distributed_init_method = "env://"
    training.distributed_world_size = processes
    training.distributed_rank = rank
    training.distributed_no_spawn = True
    training.distributed_backend = "gloo"
    training.ddp_backend = "legacy_ddp"  # the others move the model to a GPU
    training.device_id = 0
    logger.info("torchrun: process %d of %d, on the CPU", rank + 1, processes)


def end_process_group(distributed_main: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Processes leave their group before they exit, and do not abort.

    fairseq leaves that to the interpreter's exit, where a process sometimes aborts because another
    one has gone.
    """
    from torch import distributed

    distributed_main(*args, **kwargs)
    if distributed.is_initialized():
        distributed.destroy_process_group()


def accept_empty_batches(load: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`fairseq-validate` accepts batches that processes share unevenly.

    fairseq gives some processes an empty one at the end. Training passes over it, but
    `fairseq-validate` does not.
    """
    from torch import distributed

    models, cfg, task = load(*args, **kwargs)
    if distributed.is_initialized() and distributed.get_world_size() > 1:
        task.valid_step = _valid_step(task.valid_step)
    return models, cfg, task


def _valid_step(valid_step: Callable[..., Any]) -> Callable[..., Any]:
    zeros: dict[str, Any] = {}

    def step(sample: Any, *args: Any, **kwargs: Any) -> Any:
        if not sample:
            if not zeros:
                raise MemAttnError(
                    "there must be a batch for each process, but there are fewer batches; give a "
                    "smaller --max-tokens or --batch-size, or fewer processes"
                )
            return 0, 0, zeros
        loss, size, log = valid_step(sample, *args, **kwargs)
        zeros.update({name: value * 0 for name, value in log.items()})
        return loss, size, log

    return step


def generate_a_shard(main: Callable[..., Any], cfg: Any, *args: Any) -> Any:
    """`--num-shards` and `--shard-id` are used."""
    shards, shard = cfg.dataset.num_shards, cfg.dataset.shard_id
    if shards == 1:
        return main(cfg, *args)
    training = cfg.distributed_training
    training.distributed_world_size, training.distributed_rank = shards, shard
    try:
        return main(cfg, *args)
    except ZeroDivisionError:  # sentences per second, of no sentences
        raise MemAttnError(
            f"--num-shards must be at most the number of batches, but is {shards}, and shard "
            f"{shard} has no batch; give fewer shards or a smaller --batch-size"
        ) from None
