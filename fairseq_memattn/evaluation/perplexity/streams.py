"""Scores of long texts, read in segments with the memory passed from one segment to the next."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fairseq_memattn.evaluation.perplexity.targets import target_scores


@torch.no_grad()
def stream_scores(
    model: Any,
    streams: Sequence[Tensor],
    *,
    segment: int,
    eos: int,
    pad: int,
    restart_positions: bool = False,
    progress: Callable[[int], object] | None = None,
) -> list[Tensor]:
    """For each stream (N,), the log-probability of every token given all tokens before it, (N,).

    Log-probabilities are natural logarithms in float32 on the CPU. Without restart_positions they
    are those of one pass over the whole stream.

    model: a language model whose attention is a bounded memory, in evaluation mode
    streams: tokens (N,) each, read in one batch; each starts with an empty memory and eos before
        its first token
    segment: the number of tokens that are read at a time; changes only the speed unless
        restart_positions
    restart_positions: count positions from 0 in every segment, as in training, not over the stream
    progress: called with the number of tokens of every segment

    Raises MemAttnError if the model has learned fewer positions than are needed.
    """
    device = next(model.parameters()).device
    targets = pad_sequence(list(streams), batch_first=True, padding_value=pad)
    first = torch.full((len(targets), 1), eos)
    inputs = torch.cat([first, targets[:, :-1]], dim=1).masked_fill(targets.eq(pad), pad)
    memory: dict[str, Any] = {}
    scores = []
    for start in range(0, targets.shape[1], segment):
        part = slice(start, start + segment)
        given, target = (side[:, part].to(device).contiguous() for side in (inputs, targets))
        position = 0 if restart_positions else start
        features = model.decoder.read_on(given, memory, position)
        found = target_scores(model, features.flatten(0, 1), target.flatten())
        scores.append(found.view_as(target).float().cpu())
        if progress is not None:
            progress(int(target.ne(pad).sum()))
    together = torch.cat(scores, dim=1)
    return [row[: len(stream)] for row, stream in zip(together, streams, strict=True)]
