"""The losses of long texts: in blocks, or in segments with the memory passed on."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence


def target_scores(model: Any, features: Tensor, targets: Tensor) -> Tensor:
    """The log-probability of each target, (N,), a natural logarithm.

    They are those of fairseq's `get_normalized_probs`. With an adaptive softmax this one also
    allocates the probabilities of the whole vocabulary for every token.

    model: a language model of fairseq, in evaluation mode
    features: (N, E), the decoder's last states
    targets: (N,)
    """
    adaptive = getattr(model.decoder, "adaptive_softmax", None)
    if adaptive is None:
        logits = model.decoder.output_layer(features)
        log_probs = model.get_normalized_probs((logits, None), log_probs=True)
        return log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
    (head, *tails), (first, *others) = adaptive(features, targets)
    scores = -F.cross_entropy(head.float(), first, reduction="none")
    for number, (logits, target) in enumerate(zip(tails, others, strict=True)):
        if logits is not None:
            of_tail = first.eq(adaptive.cutoff[0] + number)
            scores[of_tail] -= F.cross_entropy(logits.float(), target, reduction="none")
    return scores


@torch.no_grad()
def block_losses(model: Any, batch: dict[str, Any], pad: int) -> tuple[Tensor, Tensor]:
    """The position of each predicted token of a batch, (N,), and its loss in bits, (N,), float64.

    A position is the number of tokens before the token in its block, context included. The losses
    are those of fairseq-eval-lm, which also computes the probabilities of the whole vocabulary for
    the context.

    model: a language model of fairseq, in evaluation mode
    batch: from fairseq's `eval_lm_dataloader`; tokens before `start_indices` of a row are context
    """
    targets = batch["target"]
    starts = targets.new_tensor(batch.get("start_indices", [0] * len(targets)))
    positions = torch.arange(targets.shape[1], device=targets.device)
    counted = targets.ne(pad) & (positions >= starts.unsqueeze(1))
    # fairseq's own transformers require the argument `encoder_out`.
    features, _ = model.extract_features(batch["net_input"]["src_tokens"], encoder_out=None)
    scores = target_scores(model, features[counted], targets[counted]).double()
    return positions.expand_as(counted)[counted], scores / -math.log(2)


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


@torch.no_grad()
def causal_block_losses(
    model: Any, tokens: Tensor, *, size: int, window: int, progress: Callable[[int], object]
) -> tuple["LossByPosition", int]:
    """The losses of a causal model of transformers, in blocks that it reads one by one.

    Returns the number of tokens that it reads, too.

    tokens: (N,); size: of a block, whose first `window` tokens were predicted in the block before
    progress: called with the new tokens of a block

    The first token that a block reads has no context and is not predicted.
    """
    losses, bound, read = LossByPosition(), max(window, 1), 0
    for start in range(0, max(len(tokens) - window, 1), size - window):
        block = tokens[start : start + size]
        logits = model(block[None].to(model.device)).logits[0, :-1]
        first = 1 if start == 0 else bound
        if len(block) > first:
            _add_losses(losses, logits[first - 1 :], block[first:], first)
        progress(len(block) - (window if start else 0))
        read += len(block)
    return losses, read


@torch.no_grad()
def causal_stream_losses(
    model: Any, tokens: Tensor, *, size: int, progress: Callable[[int], object]
) -> tuple["LossByPosition", int]:
    """The losses of all tokens (N,) but the first, each given all tokens before it.

    size: the number of tokens that are read at a time, which changes the speed alone

    Returns the number of tokens that the model reads, too.
    """
    losses, cache = LossByPosition(), None
    for start in range(0, len(tokens) - 1, size):
        targets = tokens[start + 1 : start + 1 + size]
        given = tokens[start : start + len(targets)]
        out = model(given[None].to(model.device), past_key_values=cache, use_cache=True)
        cache = out.get("past_key_values", out.get("cache"))
        _add_losses(losses, out.logits[0], targets, start + 1)
        progress(len(targets))
    return losses, len(tokens) - 1


def _add_losses(losses: "LossByPosition", logits: Tensor, targets: Tensor, first: int) -> None:
    """first: the number of tokens before the first target"""
    found = F.cross_entropy(logits.float(), targets.to(logits.device), reduction="none")
    losses.add(torch.arange(len(targets)) + first, found.double() / math.log(2))


FIRST = 64  # positions of the first range; the next ones double: 64 to 127, 128 to 255, ...


class PositionRange(NamedTuple):
    """Tokens before which the model has read from `begin` to `end` tokens, `end` not included.

    loss: mean negative log-probability of a token, in bits
    """

    begin: int
    end: int
    tokens: int
    loss: float
    perplexity: float


def perplexity(loss: float) -> float:
    """2 to the power of a loss in bits; infinity where that is too large for a float."""
    try:
        return float(2**loss)
    except OverflowError:
        return float("inf")


class LossByPosition:
    """Sums of losses, over all tokens and over ranges of positions."""

    def __init__(self) -> None:
        self._edges = FIRST * 2 ** torch.arange(32)
        self._loss = torch.zeros(len(self._edges), dtype=torch.float64)
        self._tokens = torch.zeros(len(self._edges), dtype=torch.int64)

    def add(self, positions: Tensor, losses: Tensor) -> None:
        """Adds tokens.

        positions: (N,), the number of tokens before each token
        losses: (N,), negative log-probabilities in bits
        """
        positions, size = positions.cpu(), len(self._edges)
        ranges = torch.bucketize(positions, self._edges, right=True)
        self._loss += torch.bincount(ranges, losses.cpu().double(), minlength=size)
        self._tokens += torch.bincount(ranges, minlength=size)

    @property
    def tokens(self) -> int:
        return int(self._tokens.sum())

    @property
    def loss(self) -> float:
        """The mean over all tokens."""
        return float(self._loss.sum()) / self.tokens

    @property
    def perplexity(self) -> float:
        """Of all tokens."""
        return perplexity(self.loss)

    def ranges(self) -> list[PositionRange]:
        """Those that have tokens."""
        edges = [0, *self._edges.tolist()]
        found = zip(edges, edges[1:], self._tokens.tolist(), self._loss.tolist(), strict=False)
        return [
            PositionRange(begin, end, tokens, loss / tokens, perplexity(loss / tokens))
            for begin, end, tokens, loss in found
            if tokens
        ]
