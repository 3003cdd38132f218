"""The data sets of windows of sentences, and of single sentences in the order of a corpus."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from fairseq_memattn.data.documents.collation import WindowCollater, WindowOptions
from fairseq_memattn.data.documents.mixture import Mixture
from fairseq_memattn.documents.ids import Documents, Indices
from fairseq_memattn.documents.windows import context_counts, target_context_counts, window_sizes


class DocumentDataset(FairseqDataset):
    """One window for each sentence of a corpus: previous sentences and the sentence itself.

    source, target: fairseq's data sets of single sentences that end with eos; target may be None
    sizes: (N,) tokens of each source sentence, and of each target sentence or None
    documents: the documents of the N sentences
    name: name of the split, a part of every batch
    training: whether examples are shuffled, and not in the order of the documents
    parts: the first sentence of each part of a training set; `mixture` says how often an epoch has
        their examples, by default once

    `target_counts` has the number of previous target sentences of each window, and
    `unlimited_counts` the same where their lengths are not known yet: those of a model's own
    translations.

    `cropped` has the number of windows that have fewer previous sentences than `options` allow,
    because of the largest number of tokens, by side.
    """

    def __init__(
        self,
        source: Any,
        target: Any | None,
        sizes: tuple[Indices, Indices | None],
        documents: Documents,
        options: WindowOptions,
        *,
        name: str = "",
        training: bool = False,
        parts: Sequence[int] = (0,),
    ) -> None:
        self.source, self.target, self.documents = source, target, documents
        self.mixture = Mixture(parts, [1.0] * len(parts), options.seed)
        self.source_sizes, self.target_sizes = sizes
        self.options, self.name, self.training = options, name, training
        self.collate = WindowCollater(options)
        self.epoch = 1
        first = documents.first_sentences()
        available = np.arange(len(first)) - first
        self.source_counts = context_counts(
            self.source_sizes, first, options.source_context, options.max_source
        )
        self.cropped = {
            "source": _count_cropped(self.source_counts, available, options.source_context)
        }
        starts = len(options.source_start()), len(options.target_start())
        self._source_windows = starts[0] + window_sizes(self.source_sizes, self.source_counts)
        self._windows = self._source_windows
        contexts = (options.source_context, options.target_context)
        self.unlimited_counts = target_context_counts(self.source_counts, available, *contexts)
        self.target_counts = self.unlimited_counts
        if self.target_sizes is not None:
            fitting = context_counts(
                self.target_sizes, first, options.target_context, options.max_target
            )
            self.cropped["target"] = _count_cropped(fitting, available, options.target_context)
            self.target_counts = target_context_counts(self.source_counts, fitting, *contexts)
            self._target_windows = starts[1] + window_sizes(self.target_sizes, self.target_counts)
            self._windows = np.maximum(self._source_windows, self._target_windows)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """`id`, and in `source` and `target` lists of sentences, oldest first, ending with eos."""
        back, back_target = int(self.source_counts[index]), int(self.target_counts[index])
        if self.options.sample_context and self.training:
            random = np.random.default_rng((self.options.seed, self.epoch, index))
            max_context = max(self.options.source_context, self.options.target_context)
            drawn = int(random.integers(0, max_context + 1))
            back, back_target = min(back, drawn), min(back_target, drawn)
        target = self.target
        return {
            "id": index,
            "source": self.sentences(self.source, index, back),
            "target": None if target is None else self.sentences(target, index, back_target),
        }

    @staticmethod
    def sentences(side: Any, index: int, back: int) -> list[Tensor]:
        """The `back` sentences before a sentence of one side, and the sentence itself."""
        return [side[i] for i in range(index - back, index + 1)]

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A batch of B windows, in the form that fairseq's criterions and generators take.

        net_input: src_tokens (B, S), src_lengths (B,) and prev_output_tokens (B, T). With
            `as_sequences`, src_tokens has the current sentences, context_tokens (B, K, S') the
            previous ones, oldest first, context_padding_mask (B, K, S') is True at padding, and
            target_context (B,) is the number of target sentences before the current one
        target: (B, T), with padding where the loss is not computed; None without targets
        """
        if not samples:
            return {}
        batch: dict[str, Any] = {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "split": self.name,
            "net_input": self.collate.sources(
                [sample["source"] for sample in samples],
                [len(sample["target"] or [None]) - 1 for sample in samples],
            ),
            "target": None,
        }
        batch["ntokens"] = int(batch["net_input"]["src_lengths"].sum())
        if samples[0]["target"] is not None:
            targets = [sample["target"] for sample in samples]
            batch["target"], inputs = self.collate.targets(targets, self.options.loss_on_window)
            batch["net_input"]["prev_output_tokens"] = inputs
            batch["ntokens"] = int(batch["target"].ne(self.options.pad).sum())
        return batch

    def of_documents(self, documents: range) -> Indices:
        """The windows of documents that have a loss."""
        if self.options.last_of_documents:
            return self.documents.last_sentences_of(documents)
        return self.documents.all_sentences_of(documents)

    def reference(self, sentence: int) -> Tensor:
        """The target sentence (T,) without context. The data set must have targets."""
        assert self.target is not None
        return self.target[sentence].long()

    def num_tokens(self, index: int) -> int:
        return int(self._windows[index])

    def num_tokens_vec(self, indices: Indices) -> Indices:
        return self._windows[indices]

    def size(self, index: int) -> tuple[int, int]:
        target = 0 if self.target_sizes is None else int(self._target_windows[index])
        return int(self._source_windows[index]), target

    def ordered_indices(self) -> Indices:
        """In training sorted by length, equal lengths shuffled; otherwise in order."""
        if not self.training:
            return np.arange(len(self))
        examples = self.of_documents(range(len(self.documents)))
        order = np.random.permutation(self.mixture.draw(examples, examples, self.epoch))
        if self.target_sizes is not None:
            order = order[np.argsort(self._target_windows[order], kind="mergesort")]
        return order[np.argsort(self._source_windows[order], kind="mergesort")]

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        return self.mixture.is_plain and not self.options.sample_context


def _count_cropped(counts: Indices, available: Indices, max_context: int) -> int:
    """The number of windows with fewer previous sentences than available, up to max_context."""
    return int((counts < np.minimum(available, max_context)).sum())


class SentenceDataset(FairseqDataset):
    """Sentences with their ids, without context.

    source, target: N sentences each, which end with eos; target may be None
    sizes: (N,) tokens of each source sentence, and of each target sentence or None
    windows: (N,) tokens of each sentence's window, which count for the size of a batch
    name: name of the split, a part of every batch
    constraints: (N, C), words that each translation must have, as fairseq packs them
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
        constraints: Tensor | None = None,
    ) -> None:
        self.source, self.target, self.constraints = source, target, constraints
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
        ids = torch.tensor([sample["id"] for sample in samples])
        batch = {
            "id": ids,
            "nsentences": len(samples),
            "ntokens": int(source["src_lengths"].sum()),
            "split": self.name,
            "net_input": source,
            "target": target,
        }
        return batch if self.constraints is None else batch | {"constraints": self.constraints[ids]}

    def num_tokens(self, index: int) -> int:
        return int(self.windows[index])

    def num_tokens_vec(self, indices: Indices) -> Indices:
        return self.windows[indices]

    def size(self, index: int) -> int:
        return int(self.windows[index])
