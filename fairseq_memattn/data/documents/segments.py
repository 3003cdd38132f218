"""The data set of segments of documents, which a model reads sentence by sentence (--stream)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from fairseq_memattn.data.documents.collation import WindowCollater
from fairseq_memattn.data.documents.dataset import DocumentDataset
from fairseq_memattn.documents.ids import Indices
from fairseq_memattn.errors import MemAttnError


class Segment(NamedTuple):
    """The sentences of a source and of its translation, each ending with eos; target may be None"""

    source: Sequence[Tensor]
    target: Sequence[Tensor] | None


def segment_rows(
    collate: WindowCollater, segments: Sequence[Segment]
) -> tuple[dict[str, Any], Tensor | None]:
    """The inputs of a model for B segments of up to K sentences, and its targets (B K, T).

    A shorter segment is filled up with rows that have no target.

    Returns src_tokens (B K, S), src_lengths (B K,), `sentences` K and, with targets,
    prev_output_tokens (B K, T).
    """
    options = collate.options
    end, nothing = torch.tensor([options.eos]), torch.tensor([options.pad])
    most = max(len(segment.source) for segment in segments)
    sources = [row for one in segments for row in _filled(one.source, most, end)]
    inputs: dict[str, Any] = collate.source_rows(sources) | {"sentences": most}
    if segments[0].target is None:
        return inputs, None
    rows = [row for one in segments for row in _filled(one.target or (), most, nothing)]
    shifted = [torch.cat([end, row[:-1]]) for row in rows]
    inputs["prev_output_tokens"] = collate.pad(shifted, left=False)
    return inputs, collate.pad(rows, left=False)


def _filled(sentences: Sequence[Tensor], count: int, filler: Tensor) -> list[Tensor]:
    return [*sentences, *[filler] * (count - len(sentences))]


class SegmentDataset(FairseqDataset):
    """Consecutive sentences of one document, in segments that together are the corpus.

    In training, the first segment of a long document has a random number of sentences, drawn anew
    for each epoch, so that every sentence is at every place of a segment. The memory of a segment
    begins empty.

    dataset: the sentences, without windows
    max_sentences: the largest number of sentences in a segment
    """

    def __init__(self, dataset: DocumentDataset, max_sentences: int) -> None:
        self.dataset, self.max_sentences = dataset, max_sentences
        self.name, self.documents, self.training = dataset.name, dataset.documents, dataset.training
        self.lengths = dataset.source_sizes
        if dataset.target_sizes is not None:
            self.lengths = np.maximum(self.lengths, dataset.target_sizes)
        self.set_epoch(1)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        starts, sizes, longest = self.documents.starts, [], self.max_sentences
        random = np.random.default_rng((self.dataset.options.seed, epoch))
        first = random.integers(1, longest + 1, len(starts)) if self.training else None
        for number in range(len(starts)):
            count = len(self.documents.sentences_of(number))
            if count > longest and first is not None:
                sizes.append(int(first[number]))
                count -= sizes[-1]
            sizes += [longest] * (count // longest) + [count % longest] * (count % longest > 0)
        self.sizes_of_segments = np.array(sizes, dtype=np.int64)
        self.ends = self.sizes_of_segments.cumsum()
        starts_of_segments = self.ends - self.sizes_of_segments
        self.longest = np.maximum.reduceat(self.lengths, starts_of_segments)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> range:
        """The sentences of a segment."""
        end = int(self.ends[index])
        return range(end - int(self.sizes_of_segments[index]), end)

    def of_documents(self, documents: range) -> Indices:
        """The segments of documents."""
        if not documents:
            return np.arange(0)
        first = self.documents.sentences_of(documents[0])[0]
        last = self.documents.sentences_of(documents[-1])[-1]
        begin, end = np.searchsorted(self.ends, [first, last], side="right")
        return np.arange(begin, end + 1)

    def collater(self, samples: Sequence[range]) -> dict[str, Any]:
        """A batch of B segments of up to K sentences as B K rows, one for each sentence.

        The form is that of `DocumentDataset.collater`, with net_input of `segment_rows`. `id` has
        the sentences, without the rows that fill up a shorter segment.
        """
        if not samples:
            return {}
        dataset = self.dataset
        inputs, targets = segment_rows(dataset.collate, [self._segment(one) for one in samples])
        counted = inputs["src_lengths"].sum()
        if targets is not None:
            counted = targets.ne(dataset.options.pad).sum()
        return {
            "id": torch.tensor([sentence for sample in samples for sentence in sample]),
            "nsentences": sum(map(len, samples)),
            "ntokens": int(counted),
            "split": self.name,
            "net_input": inputs,
            "target": targets,
        }

    def _segment(self, sentences: range) -> Segment:
        dataset = self.dataset
        target = None
        if dataset.target is not None:
            target = [dataset.reference(sentence) for sentence in sentences]
        return Segment([dataset.source[sentence] for sentence in sentences], target)

    def num_tokens(self, index: int) -> int:
        """Of a segment whose sentences are padded to the longest."""
        return int(self.sizes_of_segments[index] * self.longest[index])

    def size(self, index: int) -> tuple[int, int]:
        """The tokens of the longest sentence of either side."""
        sides = (self.dataset.source_sizes, self.dataset.target_sizes)
        segment = list(self[index])
        source, target = (0 if sizes is None else int(sizes[segment].max()) for sizes in sides)
        return source, target

    def ordered_indices(self) -> Indices:
        """In training sorted by sentences, then tokens, equal ones shuffled; otherwise in order."""
        if not self.training:
            return np.arange(len(self))
        first = self.ends - self.sizes_of_segments
        examples = self.dataset.mixture.draw(np.arange(len(self)), first, self.epoch)
        order = np.random.permutation(examples)
        return order[np.lexsort((self.longest[order], self.sizes_of_segments[order]))]

    def batch_by_size(
        self,
        indices: Indices,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        required_batch_size_multiple: int = 1,
    ) -> list[Indices]:
        """fairseq's hook: batches whose tensors have at most max_tokens elements.

        A batch is padded to the largest number of sentences of its segments and to its longest
        sentence. No segment is left out, whatever the required multiple; `check_sizes` tells of
        segments that do not fit.

        max_sentences: the largest number of segments in a batch
        """
        batches = []
        while len(indices):
            most = self._fitting(indices, max_tokens, max_sentences or len(indices))
            whole = most // required_batch_size_multiple * required_batch_size_multiple
            batch, indices = np.split(indices, [whole or most])
            batches.append(batch)
        return batches

    def _fitting(self, indices: Indices, max_tokens: int | None, most: int) -> int:
        """The number of the first segments that fit into one batch, from 1 to `most`."""
        if max_tokens:
            most = min(most, max_tokens // self.num_tokens(indices[0]))
        first = indices[:most]
        rows = np.arange(1, len(first) + 1) * np.maximum.accumulate(self.sizes_of_segments[first])
        tokens = rows * np.maximum.accumulate(self.longest[first])
        return max(1, int(np.searchsorted(tokens, max_tokens or np.inf, side="right")))

    def check_sizes(self, max_tokens: int | None) -> None:
        """Raises MemAttnError for a segment that --max-tokens excludes, in any epoch."""
        if not max_tokens:
            return
        for document in range(len(self.documents)):
            sentences = self.documents.sentences_of(document)
            lengths = self.lengths[sentences.start : sentences.stop]
            count = min(self.max_sentences, len(lengths))
            largest = count * int(lengths.max(initial=0))
            if largest <= max_tokens:
                continue
            windows = np.lib.stride_tricks.sliding_window_view(lengths, count).max(axis=1)
            if count * int(windows.max()) > max_tokens:
                raise MemAttnError(
                    f"{self.name}, document {document + 1}: a segment of {count} sentences must "
                    f"have at most {max_tokens} tokens (--max-tokens), but has "
                    f"{count * int(windows.max())}, padded to its longest sentence; raise "
                    "--max-tokens or lower --stream-sentences"
                )

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        return False
