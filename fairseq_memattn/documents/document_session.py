"""The translation of a stream of documents, requested batch by batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor, nn

from fairseq_memattn.documents.context_generator import ContextGenerator
from fairseq_memattn.documents.conversation import Conversation, documents_of_lines
from fairseq_memattn.documents.document_dataset import DocumentDataset
from fairseq_memattn.documents.document_decoder import DocumentDecoder, Hypotheses
from fairseq_memattn.documents.sentence_dataset import SentenceDataset
from fairseq_memattn.documents.sentence_windows import WindowCollater, WindowOptions
from fairseq_memattn.errors import MemAttnError

LINES = ""  # the name of lines from fairseq-interactive or a program, which belong to no split


@dataclass(frozen=True)
class SessionOptions:
    """How a session translates.

    side_by_side: the number of documents that advance together
    gold_context: take the references of the previous sentences as target context
    max_tokens, max_sentences: limits of a batch, as fairseq counts them; None is no limit
    """

    side_by_side: int
    gold_context: bool = False
    max_tokens: int | None = None
    max_sentences: int | None = None


class DocumentSession:
    """Translates each sentence of a data set with the translations of the previous ones.

    The session owns the decoder, the position in the data set, which is the next sentence, and
    the conversation, which goes on from one buffer of lines to the next (`of_lines`).

    dataset: the sentences of the conversation, then those to translate
    order: the documents to translate, ascending
    """

    def __init__(
        self,
        dataset: DocumentDataset,
        order: range,
        options: SessionOptions,
        conversation: Conversation | None = None,
    ) -> None:
        self.dataset, self.order, self.options = dataset, order, options
        self.conversation = conversation or Conversation(keep=0)
        self.known = dict(enumerate(self.conversation.translations))
        self.first = len(self.known)
        if order and not self.known:
            self.first = dataset.documents.sentences_of(order[0])[0]
        self._begin()

    @classmethod
    def of_lines(
        cls,
        lines: Sequence[Tensor],
        windows: WindowOptions,
        options: SessionOptions,
        earlier: "DocumentSession | None" = None,
    ) -> "DocumentSession":
        """A session for a buffer of lines, of which an empty one ends a document.

        earlier: the session of the buffer before, whose open document goes on
        """
        keep = max(windows.source_context, windows.target_context)
        conversation = earlier.conversation if earlier else Conversation(keep)
        dataset = dataset_of_lines([*conversation.sources, *lines], windows)
        return cls(dataset, range(len(dataset.documents)), options, conversation)

    def _begin(self) -> None:
        self.position = self.first
        self.decoder = DocumentDecoder(
            self.dataset.documents,
            self.order,
            context=self.dataset.options.target_context,
            side_by_side=self.options.side_by_side,
            known=self.known,
        )

    def is_past(self, sentence: int) -> bool:
        """Whether a sentence of the data set has been returned already."""
        return sentence < self.position

    def translate(
        self,
        generator: Any,
        models: Sequence[nn.Module],
        sentences: Sequence[int],
        device: torch.device,
    ) -> list[Hypotheses]:
        """The hypotheses of the next sentences of the data set, best first.

        A batch that begins with the first sentence starts again from there.
        """
        if sentences[0] == self.first:
            self._begin()
        scores = isinstance(generator, SequenceScorer)
        translate = ContextGenerator(
            generator,
            models,
            self.dataset,
            self.options.max_tokens,
            self.options.max_sentences,
            device,
            references=scores or self.options.gold_context,
        )
        hypotheses = self.decoder.hypotheses(sentences, translate)
        self.position = sentences[-1] + 1
        return hypotheses

    def translate_lines(
        self, generator: Any, models: Sequence[nn.Module], count: int, device: torch.device
    ) -> list[Hypotheses]:
        """The hypotheses of the next `count` lines, which become part of the conversation."""
        sentences = range(self.position, self.position + count)
        hypotheses = self.translate(generator, models, sentences, device)
        for sentence, found in zip(sentences, hypotheses, strict=True):
            self.conversation.remember(self.dataset.source[sentence], found[0]["tokens"])
        return hypotheses


def sentences_of_lines(
    lines: Sequence[Tensor], windows: WindowOptions, symbol: str
) -> SentenceDataset:
    """Lines, as fairseq prints them.

    symbol: the separator; raises MemAttnError for a line that holds it
    """
    for number, line in enumerate(lines, start=1):
        if bool(line.eq(windows.source_separator).any()):
            raise MemAttnError(
                f"line {number} of the input holds the separator {symbol!r}; give single "
                "sentences, a line each"
            )
    sizes = np.array([len(line) for line in lines], dtype=np.int64)
    return SentenceDataset(lines, None, (sizes, None), sizes, WindowCollater(windows), name=LINES)


def dataset_of_lines(lines: Sequence[Tensor], windows: WindowOptions) -> DocumentDataset:
    """Lines as a data set without targets; see `documents_of_lines`."""
    sizes = np.array([len(line) for line in lines], dtype=np.int64)
    return DocumentDataset(lines, None, (sizes, None), documents_of_lines(lines), windows)
