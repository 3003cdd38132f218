"""Answers in validation, where the windows of a question are in several batches."""

from collections import Counter, defaultdict
from typing import Any

import numpy as np
from torch import nn

from fairseq_memattn.data.questions.span_finder import Found, SpanFinder
from fairseq_memattn.data.questions.span_texts import SpanTexts
from fairseq_memattn.qa.span_candidates import LONGEST, best_text


class AnswerGatherer:
    """Gives the answer to each question when the last window of its context has been read.

    The model is one of span_answering. Batches have each window once, in any order.
    """

    def __init__(self, texts: SpanTexts) -> None:
        self.texts = texts
        self.finder = SpanFinder(texts.dataset, texts.places, longest=LONGEST, most=1)
        self.windows = np.bincount(texts.dataset.windows.context)
        self.forget()

    def forget(self) -> None:
        """Starts again: no window has been read."""
        self.found: dict[int, Found] = defaultdict(lambda: Found([], None))
        self.seen: Counter[int] = Counter()

    def take(self, model: nn.Module, sample: dict[str, Any]) -> dict[int, str]:
        """The answers to the questions whose last unread window is in a batch, by number."""
        self.finder.read(model, sample, self.found)
        numbers = self.texts.dataset.windows.context[sample["id"].cpu().numpy()].tolist()
        self.seen.update(numbers)
        complete = [number for number in set(numbers) if self.seen[number] == self.windows[number]]
        return {number: self._answer(number) for number in complete}

    def _answer(self, number: int) -> str:
        del self.seen[number]
        candidates = self.found.pop(number).candidates
        return best_text(self.texts.answers(number, candidates, most=1))
