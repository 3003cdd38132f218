"""Log-likelihoods of given translations after given context."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from fairseq import utils
from fairseq.models import FairseqEncoderDecoderModel
from torch import Tensor

from fairseq_memattn.data.documents import collation
from fairseq_memattn.data.documents.batches import similar_batches
from fairseq_memattn.data.documents.segments import Segment, segment_rows


class Pair(NamedTuple):
    """The sentences of a source and of its translation, oldest first, each ending with eos."""

    source: Sequence[Tensor]
    target: Sequence[Tensor]


class Scorer:
    """Log-likelihoods of translations under teacher forcing, in fp32.

    models: one model, or several whose probabilities are averaged
    options: the number of context sentences, and how sentences are joined
    max_tokens: the largest number of tokens of a padded batch, on the longer side

    After `score`, `dropped` is the number of pairs that lost context because their window was too
    long, and `in_context` says of each pair whether its last sentences were scored with context.
    """

    def __init__(
        self,
        models: Sequence[FairseqEncoderDecoderModel],
        options: collation.WindowOptions,
        *,
        max_tokens: int = 4096,
        device: str | torch.device = "cpu",
    ) -> None:
        self.models, self.options, self.device = models, options, torch.device(device)
        self.max_tokens = max_tokens
        self.collate = collation.WindowCollater(collation.for_models(options, models))
        self.dropped = 0
        self.in_context: list[bool] = []
        for model in models:
            model.to(self.device).eval()

    def score(
        self, pairs: Sequence[Pair], progress: Callable[[int], object] | None = None
    ) -> list[Tensor]:
        """The log-probabilities (T,) of the last target sentence of each pair, eos included.

        They are natural logarithms in float32, on the CPU.

        progress: called with the number of pairs of every batch

        Raises ValueError for a last sentence that is longer than the models allow.
        """
        self.dropped = 0
        windows = [self._window(number, pair) for number, pair in enumerate(pairs)]
        self.in_context = [len(window.source) + len(window.target) > 2 for window in windows]
        sizes = [self._size(window) for window in windows]
        scores: list[Tensor] = [torch.empty(0)] * len(pairs)
        for batch in similar_batches(range(len(sizes)), sizes.__getitem__, self.max_tokens):
            for number, tokens in zip(batch, self._batch([windows[i] for i in batch]), strict=True):
                scores[number] = tokens
            if progress:
                progress(len(batch))
        return scores

    def _window(self, number: int, pair: Pair) -> Pair:
        options = self.options
        source = list(pair.source)[-1 - options.source_context :]
        target = list(pair.target)[-1 - options.target_context :]
        full = len(source) + len(target)
        for side, name, limit in (
            (source, "source", options.max_source),
            (target, "target", options.max_target),
        ):
            while len(side) > 1 and sum(map(len, side)) > limit:
                side.pop(0)
            if len(side[-1]) > limit:
                raise ValueError(
                    f"the last {name} sentence of pair {number + 1} must have at most {limit} "
                    f"tokens (the model's --max-{name}-positions), but has {len(side[-1])}"
                )
        if options.target_context <= options.source_context:
            target = target[-len(source) :]
        self.dropped += len(source) + len(target) < full
        return Pair(source, target)

    def _size(self, window: Pair) -> int:
        """The tokens of a window, on its longer side."""
        return max(sum(map(len, side)) for side in window)

    @torch.no_grad()
    def _batch(self, windows: Sequence[Pair]) -> list[Tensor]:
        """The log-probabilities (T,) of the last target sentence of each window."""
        inputs = self.collate.sources(
            [window.source for window in windows], [len(window.target) - 1 for window in windows]
        )
        target, inputs["prev_output_tokens"] = self.collate.targets(
            [window.target for window in windows], loss_on_window=False
        )
        mean = self._log_probs(inputs, target)
        counted = target.ne(self.options.pad)
        return [row[kept].cpu() for row, kept in zip(mean, counted.to(mean.device), strict=True)]

    def _log_probs(self, inputs: dict[str, Any], target: Tensor) -> Tensor:
        """The log-probabilities (rows, T) of the targets, of all models together."""
        if self.device.type == "cuda":
            inputs, target = utils.move_to_cuda((inputs, target), self.device)
        log_probs = []
        for model in self.models:
            output = model(**collation.own_inputs(model, inputs))
            scores = model.get_normalized_probs(output, log_probs=True).float()
            log_probs.append(scores.gather(2, target.unsqueeze(2)).squeeze(2))
        return torch.stack(log_probs).logsumexp(dim=0) - math.log(len(log_probs))


class MemoryScorer(Scorer):
    """`Scorer` of models that were trained with --stream: no sentence of the context is left out.

    The sentences of a pair are read one after another, as parts of one document.
    """

    def _window(self, number: int, pair: Pair) -> Pair:
        """Raises ValueError for a sentence that is too long, and for a context of one side only."""
        if len(pair.source) != len(pair.target):
            raise ValueError(
                f"pair {number + 1} must have as many target as source sentences, of which "
                f"there are {len(pair.source)}, but has {len(pair.target)}"
            )
        limits = (self.options.max_source, self.options.max_target)
        for side, name, limit in zip(pair, ("source", "target"), limits, strict=True):
            longest = max(map(len, side))
            if longest > limit:
                raise ValueError(
                    f"a {name} sentence of pair {number + 1} must have at most {limit} tokens (the "
                    f"model's --max-{name}-positions), but has {longest}"
                )
        return pair

    def _size(self, window: Pair) -> int:
        return len(window.source) * max(len(sentence) for side in window for sentence in side)

    @torch.no_grad()
    def _batch(self, windows: Sequence[Pair]) -> list[Tensor]:
        segments = [Segment(*window) for window in windows]
        inputs, target = segment_rows(self.collate, segments)
        assert target is not None
        log_probs = self._log_probs(inputs, target).cpu()
        last = [
            number * inputs["sentences"] + len(segment.source) - 1
            for number, segment in enumerate(segments)
        ]
        counted = target.ne(self.options.pad)
        return [log_probs[row][counted[row]] for row in last]
