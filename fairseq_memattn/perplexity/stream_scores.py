"""Long texts read in segments, the memory carried from one segment to the next."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from fairseq.models import FairseqLanguageModel
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


@torch.no_grad()
def stream_scores(
    model: FairseqLanguageModel,
    streams: Sequence[Tensor],
    *,
    segment: int,
    eos: int,
    pad: int,
    restart_positions: bool = False,
    progress: Callable[[int], object] | None = None,
) -> list[Tensor]:
    """For each stream the log-probability of every token, given all tokens before it.

    model: a language model whose attention is a bounded memory, in evaluation mode
    streams: (N,) tokens each, read side by side from an empty memory; eos stands before the first
    segment: tokens that are read at a time, a matter of speed alone unless positions restart
    restart_positions: count positions anew in every segment, as in training, instead of on
    progress: called with the number of tokens of every segment

    Natural logarithms, float32, on the CPU. With positions that go on this is one pass over the
    unbroken stream. Raises MemAttnError where the model learned fewer positions than there are.
    """
    device = next(model.parameters()).device
    targets = pad_sequence(list(streams), batch_first=True, padding_value=pad)
    first = torch.full((len(targets), 1), eos)
    inputs = torch.cat([first, targets[:, :-1]], dim=1).masked_fill(targets.eq(pad), pad)
    memory: dict[str, Any] = {}
    scores = []
    for start in range(0, targets.shape[1], segment):
        given, wanted = (side[:, start : start + segment].to(device) for side in (inputs, targets))
        position = 0 if restart_positions else start
        features = model.decoder.read_on(given, memory, position)
        output = (model.decoder.output_layer(features), None)
        log_probs = model.get_normalized_probs(output, log_probs=True, sample={"target": wanted})
        scores.append(log_probs.gather(2, wanted.unsqueeze(2)).squeeze(2).float().cpu())
        if progress is not None:
            progress(int(wanted.ne(pad).sum()))
    together = torch.cat(scores, dim=1)
    return [row[: len(stream)] for row, stream in zip(together, streams, strict=True)]
