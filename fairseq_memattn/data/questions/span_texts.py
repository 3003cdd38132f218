"""The original texts of contexts, of which answers are parts."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fairseq_memattn.data.questions.spans import SpanDataset
from fairseq_memattn.qa.span_candidates import Answer, Candidate, answers_of
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
