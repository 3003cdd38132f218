"""fairseq's search strategies after a context that each sentence has for itself."""

import copy
import math
from typing import Any

import torch
from fairseq.search import BeamSearch, DiverseBeamSearch, DiverseSiblingsSearch, Sampling, Search
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

Step = tuple[Tensor, Tensor, Tensor]
# What they choose at a step depends on nothing but its inputs, and on whether it is the first one.
STATELESS = (BeamSearch, Sampling, DiverseSiblingsSearch)


class ContextSearch(Search):
    """A search of sentences whose hypotheses begin with a given context.

    The context has no part in the search: its tokens have the score 0, and the strategy of the
    generator begins after them, in each sentence at a step of its own. So n-grams that may not
    repeat, lexical constraints and penalties of diverse beams are those of the sentence alone, and
    sampling draws no random numbers for the context. Sentences with contexts of equal length share
    a copy of a strategy that has a state.

    contexts: (B, P), padded on the right
    """

    def __init__(self, generator: SequenceGenerator, contexts: Tensor) -> None:
        super().__init__(generator.tgt_dict)
        search, self.contexts = generator.search, contexts
        self.blocker = generator.repeat_ngram_blocker
        self.lengths = contexts.ne(self.pad).sum(dim=1).cpu()
        shared = self.blocker is None and isinstance(search, STATELESS)
        self.keys = torch.zeros_like(self.lengths) if shared else self.lengths
        self.parts = {int(key): copy.copy(search) for key in self.keys.unique()}
        self.numbers = torch.zeros_like(self.lengths)  # of a sentence in its part
        for key in self.parts:
            rows = self.keys.eq(key)
            self.numbers[rows] = torch.arange(int(rows.sum()))
        self.supports_constraints = search.supports_constraints
        self.stop_on_max_len = search.stop_on_max_len

    def init_constraints(self, constraints: Tensor | None, beam_size: int) -> None:
        for key, part in self.parts.items():
            own = None if constraints is None else constraints[self.keys.eq(key)]
            part.init_constraints(own, beam_size)

    def update_constraints(self, active: Tensor) -> None:
        for key, part in self.parts.items():
            part.update_constraints(active[self.keys.eq(key)])

    def prune_sentences(self, kept: Tensor) -> None:
        kept = kept.cpu()
        for key, part in self.parts.items():
            own = self.keys.eq(key)
            part.prune_sentences((own.cumsum(0) - 1)[kept][own[kept]])
        self.keys, self.lengths = self.keys[kept], self.lengths[kept]
        self.numbers, self.contexts = self.numbers[kept], self.contexts[kept]

    def step(
        self, step: int, log_probs: Tensor, scores: Tensor, tokens: Tensor, ids: Tensor
    ) -> Step:
        """fairseq's step. log_probs: (B, K, V) for K hypotheses of each sentence"""
        count, beams, _ = log_probs.shape
        words = tokens.view(count, beams, step + 1)
        found: list[tuple[Tensor, Step]] = []
        for key, part in self.parts.items():
            for begins in (self.lengths.eq(step), self.lengths < step):
                rows = (self.keys.eq(key) & begins).nonzero().flatten()
                if len(rows):
                    here = (log_probs[rows], scores[rows], words[rows], ids[rows])
                    found.append((rows, self._advance(part, rows, step, *here)))
        width = min((candidates[0].shape[1] for _, candidates in found), default=beams)
        # Of a sentence in its context, all hypotheses go on with the same token.
        best = log_probs.new_full((count, width), -math.inf)
        best[:, :beams] = 0
        last = min(step, self.contexts.shape[1] - 1)
        chosen = tokens.new_zeros(count, width)
        if last >= 0:
            chosen += self.contexts[:, last, None]
        origins = torch.arange(width, device=tokens.device).remainder(beams).repeat(count, 1)
        for rows, candidates in found:
            sides = zip((best, chosen, origins), candidates, strict=True)
            for whole, part_of in sides:
                whole[rows] = part_of[:, :width].to(whole)
        return best, chosen, origins

    def _advance(
        self,
        part: Any,
        rows: Tensor,
        step: int,
        log_probs: Tensor,
        scores: Tensor,
        words: Tensor,
        ids: Tensor,
    ) -> Step:
        """The step of a part for some of its sentences. `words` (B, K, T) begins with eos."""
        begin, beams = int(self.lengths[rows[0]]), words.shape[1]
        if self.blocker is not None:
            own = words[:, :, begin:].flatten(0, 1)
            self.blocker(own, log_probs.flatten(0, 1), len(rows), beams, step - begin)
        if isinstance(part, DiverseBeamSearch):
            ids = self.numbers[rows].to(ids)  # which it uses as rows of its batch
        first = 0 if begin == step else step
        found: Step = part.step(first, log_probs, scores, words.flatten(0, 1), ids)
        return found
