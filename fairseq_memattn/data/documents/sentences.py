"""The data set of single sentences in the order of a corpus, for generation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset

from fairseq_memattn.data.documents.collation import WindowCollater
from fairseq_memattn.data.documents.dataset import DocumentDataset
from fairseq_memattn.documents.ids import Indices


class SentenceDataset(FairseqDataset):
    """Sentences with their ids, without context.

    source, target: N sentences each, which end with eos; target may be None
    sizes: (N,) tokens of each source sentence, and of each target sentence or None
    windows: (N,) tokens of each sentence's window, which count for the size of a batch
    name: name of the split, a part of every batch
    """

    def __init__(
        self,
        source: Any,
        target: Any | None,
        sizes: tuple[Indices, Indices | None],
        windows: Indices,
        collate: WindowCollater,
        *,
        name: str = "",
    ) -> None:
        self.source, self.target = source, target
        self.source_sizes, self.target_sizes = sizes
        self.windows, self.collate, self.name = windows, collate, name

    @classmethod
    def of(cls, dataset: DocumentDataset) -> "SentenceDataset":
        """The sentences of a data set of windows. Each counts as many tokens as its window."""
        return cls(
            dataset.source,
            dataset.target,
            (dataset.source_sizes, dataset.target_sizes),
            dataset.num_tokens_vec(np.arange(len(dataset))),
            dataset.collate,
            name=dataset.name,
        )

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """A dictionary with `id`, `source` (S,), and `target` (T,) or None."""
        target = None if self.target is None else self.target[index]
        return {"id": index, "source": self.source[index], "target": target}

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A batch of B sentences.

        net_input: src_tokens (B, S), src_lengths (B,)
        target: (B, T), padded on the right; None without a target
        """
        if not samples:
            return {}
        source = self.collate.source_rows([sample["source"] for sample in samples])
        target = None
        if self.target is not None:
            target = self.collate.pad([sample["target"] for sample in samples], left=False)
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(source["src_lengths"].sum()),
            "split": self.name,
            "net_input": source,
            "target": target,
        }

    def num_tokens(self, index: int) -> int:
        return int(self.windows[index])

    def num_tokens_vec(self, indices: Indices) -> Indices:
        return self.windows[indices]

    def size(self, index: int) -> int:
        return int(self.windows[index])
