"""Training with --context-parallel: the processes of a group have parts of the same samples.

Loss, sample size and gradients of a part are summed over all processes, as those of other samples
are.
"""

from collections.abc import Callable
from typing import Any

from fairseq_memattn.errors import MemAttnError

CRITERIA = ("cross_entropy", "adaptive_loss")


def share_batches(get_iterator: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Processes with parts of the same samples have the same batches."""
    batches = get_iterator(self, *args, **kwargs)
    parts = _parts(self)
    if parts > 1:
        _check(self, parts)
        self.get_model().split_context()
        batches.num_shards = self.data_parallel_world_size // parts
        batches.shard_id = self.data_parallel_rank // parts
    return batches


def take_part(prepare: Callable[..., Any], self: Any, sample: Any, **kwargs: Any) -> Any:
    """With `--context-parallel`, each process has its part of a sample."""
    parts = _parts(self)
    if parts > 1 and isinstance(sample, dict) and sample:
        padding = self.task.target_dictionary.pad()
        sample = part_of(sample, self.data_parallel_rank % parts, parts, padding)
    return prepare(self, sample, **kwargs)


def part_of(sample: dict[str, Any], part: int, parts: int, padding: int) -> dict[str, Any]:
    """Part 0, 1 ... of `parts` of a batch of language modelling, of as many tokens as the others.

    `start` is the position of its first token.
    """
    from torch.nn.functional import pad

    inputs, target = sample["net_input"], sample["target"]
    if "start" in inputs:  # the batch that fairseq keeps for processes without one
        return sample
    length = target.shape[1]
    width = -(-length // parts)
    start = part * width
    tokens, target = (
        pad(x, (0, width * parts - length), value=padding)[:, start : start + width].contiguous()
        for x in (inputs["src_tokens"], target)
    )
    lengths = tokens.ne(padding).sum(dim=1)
    return {
        **sample,
        "ntokens": int(lengths.sum()),
        "net_input": {**inputs, "src_tokens": tokens, "src_lengths": lengths, "start": start},
        "target": target,
    }


def _parts(trainer: Any) -> int:
    parts: int = getattr(trainer.get_model(), "context_parallel", 1)
    return parts


def _check(trainer: Any, parts: int) -> None:
    processes, criterion = trainer.data_parallel_world_size, trainer.cfg.criterion
    if processes % parts:
        raise MemAttnError(
            f"--context-parallel must divide the number of processes, {processes}, but is {parts}"
        )
    name = getattr(criterion, "_name", None)
    if name not in CRITERIA or criterion.sentence_avg:
        raise MemAttnError(
            f"--context-parallel needs --criterion {' or '.join(CRITERIA)} without --sentence-avg: "
            "the loss is a sum over tokens, divided by their number"
        )
