"""Questions and windows of their contexts, in which a model marks the answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset, FairseqDataset
from numpy.typing import NDArray
from torch import Tensor

from fairseq_memattn.data.chunks import padded
from fairseq_memattn.qa.span_candidates import Indices, cut_windows

AROUND = 3  # <s>, and </s> after question and window
NO_TAG = -1


@dataclass(frozen=True)
class SpanOptions:
    """How questions become sequences.

    window: the maximum number of tokens of `<s> question </s> context </s>`
    stride: tokens from one window of a context to the next
    max_question: the maximum number of tokens of a question
    bos, eos, pad: symbols of the dictionary
    question_memory: whether batches also have the question as `memory_words`
    """

    window: int
    stride: int
    max_question: int
    bos: int
    eos: int
    pad: int
    question_memory: bool = False


class SpanDataset(FairseqDataset):
    """`<s> question </s> window </s>`, one entry for every window of every context.

    Questions are cut to max_question tokens. In a window without the whole answer the target is
    the first token, <s> (Devlin et al., 2019; GMAT, section 4.4).

    questions, contexts: N texts that end with eos, as fairseq binarises them
    answers: (N, 2) the first and the last token of each answer in its context, or -1; None if
        they are not public
    tags: 1 for tokens in supporting facts, 0 for others, of all contexts; None without tags
    name: of the split
    training: whether its batches are shuffled
    """

    def __init__(
        self,
        questions: Any,
        contexts: Any,
        answers: Indices | None,
        tags: NDArray[Any] | None,
        options: SpanOptions,
        *,
        name: str,
        training: bool = False,
    ) -> None:
        self.questions, self.contexts = questions, contexts
        self.answers, self.tags = answers, tags
        self.options, self.name, self.training = options, name, training
        asked = np.asarray(questions.sizes) - 1
        self.lengths = np.asarray(contexts.sizes) - 1
        self.asked = np.minimum(asked, options.max_question)
        self.cut = int((asked > options.max_question).sum())
        self.begins = np.cumsum(self.lengths) - self.lengths
        rooms = options.window - self.asked - AROUND
        self.windows = cut_windows(self.lengths, rooms, options.stride)
        self.sizes = self.asked[self.windows.context] + AROUND + self.windows.tokens

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """A window, for `collater`; `begins` is the position of its first context token."""
        options = self.options
        number, first, count = (int(column[index]) for column in self.windows)
        question = self.questions[number][: self.asked[number]].long()
        window = self.contexts[number][first : first + count].long()
        bos, eos = torch.tensor([options.bos]), torch.tensor([options.eos])
        return {
            "id": index,
            "tokens": torch.cat([bos, question, eos, window, eos]),
            "question": question,
            "begins": len(question) + 2,
            "count": count,
            "target": self._target(number, first, count, len(question) + 2),
            "tags": self._tags(number, first, count, len(question) + 2),
        }

    def _target(self, number: int, first: int, count: int, begins: int) -> Tensor | None:
        if self.answers is None:
            return None
        start, end = (int(token) - first for token in self.answers[number])
        if start < 0 or end >= count:
            return torch.zeros(2, dtype=torch.long)
        return torch.tensor([start + begins, end + begins])

    def _tags(self, number: int, first: int, count: int, begins: int) -> Tensor | None:
        if self.tags is None:
            return None
        tags = torch.zeros(begins + count + 1, dtype=torch.long)
        at = self.begins[number] + first
        tags[begins : begins + count] = torch.from_numpy(self.tags[at : at + count].astype(int))
        return tags

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A batch of B windows, and the name of their split.

        net_input: src_tokens (B, S), src_lengths (B,) and, with question_memory,
            memory_words (B, Q), padded on the right
        candidates: (B, S) True where an answer may begin or end: <s> and the window
        target: (B, 2) first and last token of the answer, or None
        tags: (B, S) 1 in supporting facts, else 0, NO_TAG at padding; or None
        """
        if not samples:
            return {}
        tokens = padded([sample["tokens"] for sample in samples], self.options.pad)
        places = torch.arange(tokens.shape[1])
        begins, counts = (
            torch.tensor([[sample[key]] for sample in samples]) for key in ("begins", "count")
        )
        inside = (places >= begins) & (places < begins + counts)
        lengths = torch.tensor([len(sample["tokens"]) for sample in samples])
        batch: dict[str, Any] = {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "split": self.name,
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "net_input": {"src_tokens": tokens, "src_lengths": lengths},
            "candidates": inside | (places == 0),
            "target": None,
            "tags": None,
        }
        if self.options.question_memory:
            questions = [sample["question"] for sample in samples]
            batch["net_input"]["memory_words"] = padded(questions, self.options.pad)
        if self.answers is not None:
            batch["target"] = torch.stack([sample["target"] for sample in samples])
        if self.tags is not None:
            batch["tags"] = padded([sample["tags"] for sample in samples], NO_TAG)
        return batch

    def num_tokens(self, index: int) -> int:
        return int(self.sizes[index])

    def num_tokens_vec(self, indices: Indices) -> Indices:
        return self.sizes[indices]

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    def ordered_indices(self) -> Indices:
        """By length; in training shuffled where lengths are equal."""
        order = np.random.permutation(len(self)) if self.training else np.arange(len(self))
        return order[np.argsort(self.sizes[order], kind="mergesort")]


class QuestionShards(BaseWrapperDataset):
    """Windows in batches for several workers, where one worker reads all windows of a question.

    shards: the number of workers; fairseq gives worker i the batches i, i + shards, ...
    """

    def __init__(self, dataset: SpanDataset, shards: int) -> None:
        super().__init__(dataset)
        self.shards = shards

    def batch_by_size(self, indices: Indices, *args: Any, **kwargs: Any) -> list[Any]:
        """One batch of each shard in turn, with empty ones after the last batch of a shard."""
        shard = self.dataset.windows.context[indices] % self.shards
        by_shard = [
            self.dataset.batch_by_size(indices[shard == n], *args, **kwargs)
            for n in range(self.shards)
        ]
        return [batch for turn in zip_longest(*by_shard, fillvalue=[]) for batch in turn]
