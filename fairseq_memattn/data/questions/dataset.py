"""A fairseq data set of questions, their contexts and their answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from fairseq_memattn.data.chunks import Chunking, collate_chunks, padded
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.qa.question_sets import Record
from fairseq_memattn.qa.span_candidates import Indices


@dataclass(frozen=True)
class QuestionOptions:
    """How questions become sequences.

    max_source: the maximum number of tokens of `question </s> context </s>` in all chunks, with
        those that are repeated
    chunks: the number of sequences of max_source / chunks tokens that they are cut into
    max_target: the maximum number of tokens of `answer </s>`
    pad, eos: symbols of the dictionary
    chunk_overlap: the tokens of the one before that a chunk begins with
    repeat_question: whether every chunk begins with `question </s>`, before these
    """

    max_source: int
    chunks: int
    max_target: int
    pad: int
    eos: int
    chunk_overlap: int = 0
    repeat_question: bool = False

    @property
    def chunking(self) -> Chunking:
        return Chunking(self.chunks, self.max_source // self.chunks, self.chunk_overlap)

    def heads(self, questions: Indices) -> Indices:
        """(B,), the tokens that every chunk begins with, for questions of so many tokens (B,)."""
        return questions * self.repeat_question

    def split(self, source: Tensor) -> list[Tensor]:
        """The chunks of a source (S,)."""
        head = int(source.eq(self.eos).nonzero()[0]) + 1 if self.repeat_question else 0
        return self.chunking.split(source, head)


class QuestionDataset(FairseqDataset):
    """Pairs of a source `question </s> context </s>` and a target `answer </s>`.

    Contexts and answers are cut at their end to the limits and keep their </s>; questions are not
    cut. Al Adel (2022), section 4, has limits of 512 and 40 tokens.
    Raises MemAttnError for a question that leaves no room for a context, and, if every chunk begins
    with the question, for one with an eos before its end.

    questions, contexts, answers: fairseq's data sets of texts that end with eos
    answers: None if they are not public
    records: ids and accepted answers, line-aligned
    name: of the split, part of every batch
    training: whether its batches are shuffled
    """

    def __init__(
        self,
        questions: Any,
        contexts: Any,
        answers: Any | None,
        records: Sequence[Record],
        options: QuestionOptions,
        *,
        name: str = "",
        training: bool = False,
    ) -> None:
        self.questions, self.contexts, self.answers = questions, contexts, answers
        self.records, self.options, self.name, self.training = records, options, name, training
        asked = np.asarray(questions.sizes)
        self._check_questions(asked)
        if options.repeat_question:
            self._check_ends()
        heads = options.heads(asked)
        self.capacities = options.chunking.capacity(heads)
        whole = asked + np.asarray(contexts.sizes)
        self.source_sizes = options.chunking.tokens(np.minimum(whole, self.capacities), heads)
        self.cut = {"contexts": int((whole > self.capacities).sum())}
        self.target_sizes: Indices | None = None
        if answers is not None:
            said = np.asarray(answers.sizes)
            self.target_sizes = np.minimum(said, options.max_target)
            self.cut["answers"] = int((said > options.max_target).sum())

    def _check_questions(self, asked: Indices) -> None:
        options = self.options
        room, place = options.chunking.capacity(), f"--max-source-length {options.max_source}"
        if options.repeat_question:
            length = options.chunking.length
            room, place = length - options.chunk_overlap, f"chunks of {length} tokens"
        if options.chunk_overlap:
            place += f" with --chunk-overlap {options.chunk_overlap}"
        if asked.max(initial=0) >= room:
            number = int(np.argmax(asked >= room))
            raise MemAttnError(
                f"{self.name}, the question {self.records[number].id!r}: its {asked[number]} "
                f"tokens with </s> leave no room for a context in {place}"
            )

    def _check_ends(self) -> None:
        for number, record in enumerate(self.records):
            if not self.questions[number][:-1].ne(self.options.eos).all():
                raise MemAttnError(
                    f"{self.name}, the question {record.id!r}: it has </s> before its end, and "
                    "with --repeat-question a question ends at its first </s>"
                )

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """id, source (S,) and target (T,) or None, as whole sequences."""
        question = self.questions[index]
        room = int(self.capacities[index]) - len(question)
        source = torch.cat([question, cut(self.contexts[index], room)])
        target = None
        if self.answers is not None:
            target = cut(self.answers[index], self.options.max_target)
        return {"id": index, "source": source, "target": target}

    def collater(
        self, samples: Sequence[dict[str, Any]], *, chunked: bool = True
    ) -> dict[str, Any]:
        """A batch of B questions.

        net_input: the result of `collate_chunks` and prev_output_tokens (B, T)
        target: (B, T); None without answers

        chunked: whether to cut the sources into chunks
        """
        if not samples:
            return {}
        options = self.options
        sources = [sample["source"] for sample in samples]
        parts = [options.split(row) if chunked else [row] for row in sources]
        batch: dict[str, Any] = {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "split": self.name,
            "net_input": collate_chunks(parts, options.pad),
            "target": None,
            "ntokens": sum(map(len, sources)),
        }
        if self.answers is not None:
            targets = [sample["target"] for sample in samples]
            batch["target"] = padded(targets, options.pad)
            batch["net_input"]["prev_output_tokens"] = padded(
                [row.roll(1) for row in targets], options.pad
            )
            batch["ntokens"] = sum(map(len, targets))
        return batch

    def num_tokens(self, index: int) -> int:
        return int(self.num_tokens_vec(np.array([index]))[0])

    def num_tokens_vec(self, indices: Indices) -> Indices:
        sizes = self.source_sizes[indices]
        if self.target_sizes is None:
            return sizes
        return np.maximum(sizes, self.target_sizes[indices])

    def size(self, index: int) -> tuple[int, int]:
        """The lengths of the longest sequences of encoder and decoder."""
        target = 0 if self.target_sizes is None else int(self.target_sizes[index])
        return min(int(self.source_sizes[index]), self.options.chunking.length), target

    def ordered_indices(self) -> Indices:
        """By length; in training shuffled where lengths are equal."""
        order = np.random.permutation(len(self)) if self.training else np.arange(len(self))
        if self.target_sizes is not None:
            order = order[np.argsort(self.target_sizes[order], kind="mergesort")]
        return order[np.argsort(self.source_sizes[order], kind="mergesort")]


def cut(tokens: Tensor, most: int) -> Tensor:
    """A text of at most `most` tokens, which keeps its eos."""
    return tokens if len(tokens) <= most else torch.cat([tokens[: most - 1], tokens[-1:]])
