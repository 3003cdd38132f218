"""Log-likelihoods of given translations after given context, of models with carried memories."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fairseq_memattn.data.documents.rows import Segment, segment_rows
from fairseq_memattn.tasks.inference.scorer import Pair, Scorer


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
