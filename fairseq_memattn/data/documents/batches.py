"""Batches of sentences: all of a corpus in order, in shards of documents, or of similar size."""

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from fairseq.data import iterators

from fairseq_memattn.data.documents.dataset import DocumentDataset, SentenceDataset
from fairseq_memattn.data.documents.segments import SegmentDataset
from fairseq_memattn.documents.ids import Indices
from fairseq_memattn.errors import MemAttnError

Row = TypeVar("Row")


def document_batches(
    dataset: DocumentDataset | SegmentDataset,
    shards: int,
    shard: int,
    max_tokens: int | None,
    max_sentences: int | None,
) -> list[Indices]:
    """The batches of one shard, and empty batches up to the largest number in a shard.

    In distributed validation, all processes need the same number of batches, because they wait for
    each other after each one.

    shards, shard: number of shards, and the index of this one
    max_tokens, max_sentences: limits of a batch; None is no limit
    """
    batches = [
        dataset.batch_by_size(
            dataset.of_documents(dataset.documents.shard(shards, number)),
            max_tokens=max_tokens,
            max_sentences=max_sentences,
        )
        for number in range(shards)
    ]
    own = list(batches[shard])
    return own + [[]] * (max(map(len, batches)) - len(own))


class ShardIterator(iterators.EpochBatchIterator):
    """The batches of one shard, which may be empty."""

    @property
    def first_batch(self) -> Any:
        """What fairseq computes in the place of an empty batch, and whose results it ignores."""
        own: Any = next(iter(self.frozen_batches), ())
        return self.collate_fn([self.dataset[i] for i in (own if len(own) else [0])])


def similar_batches(
    rows: Iterable[Row],
    size: Callable[[Row], int],
    max_tokens: int | None,
    max_rows: int | None = None,
) -> list[list[Row]]:
    """Batches of rows of similar size, largest first, as large as the limits of each batch allow.

    size: the tokens of a row, to which those after it in its batch are padded
    """
    batches: list[list[Row]] = []
    limit: float = 0
    for row in sorted(rows, key=size, reverse=True):
        if not batches or len(batches[-1]) >= limit:
            batches.append([])
            limit = max_tokens // max(size(row), 1) if max_tokens else math.inf
            limit = min(limit, max_rows or math.inf)
        batches[-1].append(row)
    return batches


def check_sizes(
    dataset: DocumentDataset | SentenceDataset,
    max_positions: tuple[int, int],
    max_tokens: int | None,
    before: int = 0,
) -> None:
    """Raises MemAttnError for a sentence that fairseq would leave out of its output.

    max_positions: the largest numbers of tokens of a source and of a target sentence
    max_tokens: the limit of a batch, and therefore of a window; None is no limit
    before: the number of sentences before those of the data set, for the error message
    """
    name = dataset.name or "the input"
    sides = {"source": dataset.source_sizes, "target": dataset.target_sizes}
    for (side, lengths), limit in zip(sides.items(), max_positions, strict=True):
        if lengths is not None and lengths.max(initial=0) > limit:
            number = int(np.argmax(lengths > limit))
            raise MemAttnError(
                f"{name}, {side} sentence {before + number + 1} must have at most {limit} tokens "
                f"(--max-{side}-positions), but has {lengths[number]}"
            )
    windows = dataset.num_tokens_vec(np.arange(len(dataset)))
    if max_tokens and windows.max(initial=0) > max_tokens:
        number = int(np.argmax(windows))
        raise MemAttnError(
            f"{name}, sentence {before + number + 1}: its window must have at most {max_tokens} "
            f"tokens (--max-tokens), but has {windows[number]}; raise --max-tokens, or lower "
            "--source-context, --target-context or --max-source-positions"
        )
