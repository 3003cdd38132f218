"""Batches of all sentences of a corpus in order, in shards of whole documents."""

import numpy as np

from fairseq_memattn.data.document_ids import Documents
from fairseq_memattn.data.indices import Indices
from fairseq_memattn.documents.document_dataset import DocumentDataset
from fairseq_memattn.documents.sentence_dataset import SentenceDataset
from fairseq_memattn.errors import MemAttnError


def document_batches(
    dataset: DocumentDataset,
    shards: int,
    shard: int,
    max_tokens: int | None,
    max_sentences: int | None,
) -> list[Indices]:
    """The batches of one shard; empty ones make it as many as the largest shard has.

    Processes that validate together wait for each other after every batch.
    """
    batches = [
        dataset.batch_by_size(
            _sentences(dataset.documents, dataset.documents.shard(shards, number)),
            max_tokens=max_tokens,
            max_sentences=max_sentences,
        )
        for number in range(shards)
    ]
    own = list(batches[shard])
    return own + [[]] * (max(map(len, batches)) - len(own))


def _sentences(documents: Documents, shard: range) -> Indices:
    return np.array([i for number in shard for i in documents.sentences_of(number)], dtype=np.int64)


def check_sizes(
    dataset: DocumentDataset | SentenceDataset,
    max_positions: tuple[int, int],
    max_tokens: int | None,
) -> None:
    """Raises MemAttnError for a sentence that fairseq would leave out, a line of the output.

    max_positions: the most tokens of a source and of a target sentence
    max_tokens: of a batch, and so of a window; None is no limit
    """
    name = dataset.name or "the input"
    sides = {"source": dataset.source_sizes, "target": dataset.target_sizes}
    for (side, lengths), limit in zip(sides.items(), max_positions, strict=True):
        if lengths is not None and lengths.max(initial=0) > limit:
            number = int(np.argmax(lengths > limit))
            raise MemAttnError(
                f"{name}, {side} sentence {number + 1}: {lengths[number]} "
                f"tokens are more than the {limit} of --max-{side}-positions"
            )
    windows = dataset.num_tokens_vec(np.arange(len(dataset)))
    if max_tokens and windows.max(initial=0) > max_tokens:
        number = int(np.argmax(windows))
        raise MemAttnError(
            f"{name}, sentence {number + 1}: its window has {windows[number]} tokens, more than "
            f"--max-tokens {max_tokens}; raise --max-tokens, or lower --source-context, "
            "--target-context or --max-source-positions"
        )
