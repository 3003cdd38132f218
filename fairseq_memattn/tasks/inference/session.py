"""The translation of a stream of documents, requested batch by batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.sequence_generator import SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor, nn

from fairseq_memattn.data.documents.collation import WindowOptions
from fairseq_memattn.data.documents.dataset import DocumentDataset
from fairseq_memattn.documents import decoder
from fairseq_memattn.documents.ids import Documents
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.tasks.inference import context_generator

LINES = ""  # the split's name of lines from fairseq-interactive and `translate`, which have none


@dataclass(frozen=True)
class SessionOptions:
    """The options of a session.

    side_by_side: the number of documents that are translated together, one sentence of each
    gold_context: use the references of the previous sentences as target context
    max_tokens, max_sentences: limits of a batch, as fairseq counts them; None is no limit
    progress: show a progress bar
    stream: carry the memory of a document from sentence to sentence, instead of windows
    """

    side_by_side: int
    gold_context: bool = False
    max_tokens: int | None = None
    max_sentences: int | None = None
    progress: bool = False
    stream: bool = False


class DocumentSession:
    """Translates each sentence of a data set with the translations of the previous ones.

    The session owns the decoder, the index of the next sentence, and the conversation, which
    continues from one buffer of lines to the next (`of_lines`).

    dataset: the sentences of the conversation, followed by the sentences to translate
    order: the documents to translate, ascending
    conversation: the last sentences of the current document, which are translated already
    constraints: as in `SentenceGenerator`
    """

    def __init__(
        self,
        dataset: DocumentDataset,
        order: range,
        options: SessionOptions,
        conversation: decoder.Conversation | None = None,
        constraints: Tensor | None = None,
    ) -> None:
        self.dataset, self.order, self.options = dataset, order, options
        self.constraints = constraints
        self.is_open = conversation is not None
        self.conversation = conversation or decoder.Conversation(keep=0)
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
        constraints: Tensor | None = None,
    ) -> "DocumentSession":
        """A session for a buffer of lines. An empty line ends a document.

        lines: sentences that end with eos
        earlier: the session of the previous buffer, whose last document continues
        constraints: (N, C), words that the translation of each line must have
        """
        keep = max(windows.source_context, windows.target_context)
        conversation = earlier.conversation if earlier else decoder.Conversation(keep)
        if constraints is not None:
            none = constraints.new_zeros(len(conversation.sources), constraints.shape[1])
            constraints = torch.cat([none, constraints])
        lines = [*conversation.sources, *lines]
        sizes = np.array([len(line) for line in lines], dtype=np.int64)
        documents = decoder.documents_of_lines(lines)
        dataset = DocumentDataset(lines, None, (sizes, None), documents, windows)
        return cls(dataset, range(len(dataset.documents)), options, conversation, constraints)

    def _begin(self) -> None:
        self.position = self.first
        self.texts: dict[int, list[tuple[str, str]]] = {}
        begun = self.conversation.memory
        self.memories: context_generator.Memories = {} if begun is None else {0: begun}
        sizes = [len(self.dataset.documents.sentences_of(number)) for number in self.order]
        progress = decoder.DocumentProgress(sum(sizes) - len(self.known), len(sizes))
        self.decoder = decoder.DocumentDecoder(
            self.dataset.documents,
            self.order,
            context=self.dataset.options.target_context,
            side_by_side=self.options.side_by_side,
            known=self.known,
            progress=progress if self.options.progress else None,
        )

    def is_past(self, sentence: int) -> bool:
        """Whether a sentence of the data set has been returned already, or none is to be."""
        return not self.order or sentence < self.position

    def translate(
        self,
        generator: Any,
        models: Sequence[nn.Module],
        sentences: Sequence[int],
        device: torch.device,
    ) -> list[decoder.Hypotheses]:
        """The hypotheses of the next sentences of the data set, best first.

        A batch that begins with the first sentence restarts the session.
        """
        if sentences[0] == self.first:
            self._begin()
        hypotheses = self.decoder.hypotheses(sentences, self._translator(generator, models, device))
        self.position = sentences[-1] + 1
        return hypotheses

    def end_documents(self, texts: Mapping[int, tuple[str, str]]) -> tuple[list[str], list[str]]:
        """The joined translations and references of the documents that end with given sentences.

        texts: translation and reference of the next sentences. Those of open documents are kept
        """
        ended = []
        for sentence, pair in texts.items():
            number = self.dataset.documents.of(sentence)
            self.texts.setdefault(number, []).append(pair)
            if sentence == self.dataset.documents.sentences_of(number)[-1]:
                ended.append(self.texts.pop(number))
        hypotheses, references = (
            [" ".join(pair[side] for pair in pairs) for pairs in ended] for side in (0, 1)
        )
        return hypotheses, references

    def _translator(
        self, generator: Any, models: Sequence[nn.Module], device: torch.device
    ) -> decoder.Translate:
        """Raises MemAttnError where references are to be used, but the data set has none."""
        options, dataset = self.options, self.dataset
        references = isinstance(generator, SequenceScorer) or options.gold_context
        if references and dataset.target is None:
            raise MemAttnError(
                "--gold-target-context and --score-reference need references, which this input "
                "does not have"
            )
        limits = (options.max_tokens, options.max_sentences, device)
        given: dict[str, Any] = {"references": references, "constraints": self.constraints}
        if not options.stream:
            return context_generator.ContextGenerator(generator, models, dataset, *limits, **given)
        translate = context_generator.MemoryGenerator(
            *(generator, models, dataset, *limits), memories=self.memories, **given
        )

        def translate_and_close(
            sentences: Sequence[int], contexts: Sequence[Sequence[Tensor]]
        ) -> list[decoder.Hypotheses]:
            hypotheses = translate(sentences, contexts)
            documents = dataset.documents
            for sentence in sentences:  # drop memories of documents that end and do not continue
                number = documents.of(sentence)
                continues = self.is_open and number == len(documents) - 1
                if sentence == documents.sentences_of(number)[-1] and not continues:
                    self.memories.pop(number, None)
            return hypotheses

        return translate_and_close

    def translate_lines(
        self, generator: Any, models: Sequence[nn.Module], count: int, device: torch.device
    ) -> list[decoder.Hypotheses]:
        """The hypotheses of the next `count` lines, which become part of the conversation."""
        sentences = range(self.position, self.position + count)
        hypotheses = self.translate(generator, models, sentences, device)
        for sentence, found in zip(sentences, hypotheses, strict=True):
            self.conversation.remember(self.dataset.source[sentence], found[0]["tokens"])
        has_ended = len(self.dataset.source[sentences[-1]]) == 1  # by an empty line
        last = len(self.dataset.documents) - 1
        self.conversation.memory = None if has_ended else self.memories.get(last)
        return hypotheses


SIDE_BY_SIDE = 256  # documents, the default of --parallel-documents


class ContextTranslator:
    """Translates documents with the search of fairseq-generate.

    models: one model, or several whose probabilities are averaged
    windows: the number of context sentences, and how sentences are joined; without context the
        sentences are translated one by one
    dictionary: of the target
    separator: index of the symbol between two target sentences, which no translation has; None for
        models without one
    max_tokens: the largest number of tokens of a padded batch
    stream: whether the models carry the memory of a document, as with --stream
    search: arguments of fairseq's SequenceGenerator, such as `beam_size`

    After `translate`, `cropped` is the number of sentences that lost source context because their
    window was too long.
    """

    def __init__(
        self,
        models: Sequence[FairseqEncoderDecoderModel],
        windows: WindowOptions,
        dictionary: Any,
        separator: int | None,
        *,
        max_tokens: int,
        device: str | torch.device,
        stream: bool = False,
        **search: Any,
    ) -> None:
        self.models, self.windows, self.device = models, windows, torch.device(device)
        self.options = SessionOptions(
            SIDE_BY_SIDE, max_tokens=max_tokens, progress=True, stream=stream
        )
        self.cropped = 0
        for model in models:
            model.to(self.device).eval()
        ensemble = context_generator.ContextEnsemble(models, separator, dictionary)
        if stream:
            ensemble = context_generator.MemoryEnsemble(models)
        self.generator = SequenceGenerator(ensemble, dictionary, **search)

    def translate(self, documents: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
        """The translation of each sentence of each document. All sentences end with eos."""
        sentences = [sentence for document in documents for sentence in document]
        lengths = [len(document) for document in documents]
        starts = np.cumsum([0, *lengths[:-1]])
        sizes = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
        dataset = DocumentDataset(
            sentences, None, (sizes, None), Documents(starts, len(sentences)), self.windows
        )
        self.cropped = dataset.cropped["source"]
        session = DocumentSession(dataset, range(len(documents)), self.options)
        found = iter([self._next(session, number) for number in range(len(sentences))])
        return [[next(found) for _ in document] for document in documents]

    def _next(self, session: DocumentSession, sentence: int) -> Tensor:
        (hypotheses,) = session.translate(self.generator, self.models, [sentence], self.device)
        tokens: Tensor = hypotheses[0]["tokens"]
        return tokens.cpu()
