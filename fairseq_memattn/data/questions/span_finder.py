"""Answers to questions as a model of the task span_answering finds them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.utils import move_to_cuda
from numpy.typing import NDArray
from torch import nn
from tqdm import tqdm

from fairseq_memattn.data.questions.spans import SpanDataset
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.qa.span_candidates import (
    LONGEST,
    Answer,
    Candidate,
    answers_of,
    best_spans,
    best_text,
    best_windows,
)
from fairseq_memattn.qa.span_records import SpanRecord, read_numbers, read_span_records


class SpanTexts(NamedTuple):
    """The data set of N questions, N records, and the characters (T, 2) of all contexts' tokens."""

    dataset: SpanDataset
    records: list[SpanRecord]
    places: NDArray[Any]

    def places_of(self, number: int) -> NDArray[Any]:
        """The characters (L, 2) of the tokens of a question's context."""
        begin = self.dataset.begins[number]
        return self.places[begin : begin + self.dataset.lengths[number]]

    def answers(self, number: int, candidates: Iterable[Candidate], most: int) -> list[Answer]:
        """The answers to a question, best first. most: the number of spans that are read."""
        return answers_of(candidates, self.records[number].context, self.places_of(number), most)


def read_texts(dataset: SpanDataset, folder: Path, split: str) -> SpanTexts:
    """The texts of a split of a prepared folder.

    Raises ValueError if a file is missing or does not fit the data set.
    """
    path = folder / "records" / f"{split}.jsonl"
    if not path.is_file():
        raise ValueError(
            f"{path}: there is no such file; `memattn prepare squad --spans` writes it"
        )
    records = list(read_span_records(path))
    if len(records) != len(dataset.lengths):
        raise ValueError(
            f"{path}: has {len(records)} records, but there are {len(dataset.lengths)} questions"
        )
    places = read_numbers(folder, "places", split, 2 * int(dataset.lengths.sum()))
    return SpanTexts(dataset, records, places.reshape(-1, 2))


class Found(NamedTuple):
    """The scores of a model for a question.

    candidates: likely spans of its context's tokens, from all windows
    facts: (L,) log odds, in nats, that a token of the context is in a supporting fact; None for a
        model without supporting facts
    """

    candidates: list[Candidate]
    facts: NDArray[np.float32] | None


class SpanFinder:
    """Reads windows of contexts of a data set.

    A token can begin an answer only in the window that has most of its context (BERT's run_squad).
    Its score as a part of supporting facts is also from that window.

    places: (T, 2) characters of the tokens of all contexts
    longest: the maximum number of tokens of an answer; most: the number of spans kept in a window
    """

    def __init__(
        self, dataset: SpanDataset, places: NDArray[Any], *, longest: int, most: int
    ) -> None:
        self.dataset, self.places = dataset, places
        self.longest, self.most = longest, most
        context, first, count = dataset.windows
        edges = np.searchsorted(context, np.arange(len(dataset.lengths) + 1))
        self.bests = [
            low + best_windows(first[low:high], count[low:high], int(length))
            for low, high, length in zip(edges[:-1], edges[1:], dataset.lengths, strict=True)
        ]

    def find(self, model: nn.Module, max_tokens: int) -> list[Found]:
        """The scores for every question, in order. max_tokens: of a padded batch."""
        dataset = self.dataset
        if dataset.sizes.max() > max_tokens:
            raise MemAttnError(
                f"--max-tokens must be at least the {dataset.sizes.max()} tokens of the longest "
                f"window, but is {max_tokens}"
            )
        batches = dataset.batch_by_size(dataset.ordered_indices(), max_tokens=max_tokens)
        on_gpu = next(model.parameters()).is_cuda
        found = [
            Found([], None if dataset.tags is None else np.zeros(int(length), np.float32))
            for length in dataset.lengths
        ]
        by_number = dict(enumerate(found))
        for batch in tqdm(batches, "windows", disable=None, unit="batch", leave=False):
            sample = dataset.collater([dataset[int(index)] for index in batch])
            self.read(model, move_to_cuda(sample) if on_gpu else sample, by_number)
        return found

    @torch.no_grad()
    def read(self, model: nn.Module, sample: dict[str, Any], found: Mapping[int, Found]) -> None:
        """Adds the scores of a batch of windows to `found`, by question."""
        scores, _ = model(**sample["net_input"])
        inside = sample["candidates"].cpu().clone()
        inside[:, 0] = False
        for index, row, mask in zip(
            sample["id"].tolist(), scores.float().cpu(), inside, strict=True
        ):
            self._take(found, index, row[mask].numpy())

    def _take(self, found: Mapping[int, Found], index: int, scores: NDArray[np.float32]) -> None:
        """Adds the scores (C, 2 or 4) of a window's tokens to those of its question."""
        number, first, count = (int(column[index]) for column in self.dataset.windows)
        begin = self.dataset.begins[number] + first
        best_here = self.bests[number][first : first + count] == index
        question = found[number]
        question.candidates.extend(
            Candidate(score, first + begins, first + ends)
            for score, begins, ends in best_spans(
                scores[:, 0],
                scores[:, 1],
                best_here,
                self.places[begin : begin + count],
                self.longest,
                self.most,
            )
        )
        if question.facts is not None:
            odds = scores[:, 3] - scores[:, 2]
            question.facts[first : first + count][best_here] = odds[best_here]


def supporting(
    places: NDArray[Any], facts: NDArray[np.float32], sentences: Sequence[tuple[int, int]]
) -> Iterator[bool]:
    """Whether the mean log odds of each sentence's tokens are positive (choice).

    places: (L, 2) characters of the context's tokens; facts: (L,) as `Found` has them
    sentences: the first character of each and the one after its last
    """
    for begin, end in sentences:
        held = np.maximum(places[:, 0], begin) < np.minimum(places[:, 1], end)
        yield bool(held.any() and facts[held].mean() > 0)


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
        answers = {}
        for number in complete:
            del self.seen[number]
            candidates = self.found.pop(number).candidates
            answers[number] = best_text(self.texts.answers(number, candidates, most=1))
        return answers
