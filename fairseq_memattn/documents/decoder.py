"""The order of translation: one sentence of each of several documents at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from tqdm import tqdm

from fairseq_memattn.attention.nn.carried import DocumentMemory
from fairseq_memattn.documents.ids import Documents

Hypotheses = list[dict[str, Any]]
# Sentences, and for each the translations of the sentences before it -> hypotheses, best first.
Translate = Callable[[Sequence[int], Sequence[Sequence[Tensor]]], list[Hypotheses]]


class DocumentDecoder:
    """Translates documents on demand. The best hypothesis of each sentence becomes context.

    documents: the documents of the corpus
    order: the documents to translate, in the order in which their sentences are requested
    context: the largest number of previous translations that a sentence gets as context
    side_by_side: the number of documents that are translated together, one sentence of each
    known: translations that exist already, by sentence
    progress: called with the number of sentences that were translated in one call, and with the
        number of documents that ended with them
    """

    def __init__(
        self,
        documents: Documents,
        order: Iterable[int],
        *,
        context: int,
        side_by_side: int,
        known: dict[int, Tensor] | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        self.documents = documents
        self.context, self.side_by_side = context, side_by_side
        self.waiting = iter(order)
        self.known, self.progress = known or {}, progress
        self.active: list[_Position] = []
        self.ready: dict[int, Hypotheses] = {}

    def hypotheses(self, sentences: Sequence[int], translate: Translate) -> list[Hypotheses]:
        """The hypotheses of sentences, best first.

        translate: translates sentences of different documents in one call. If it raises an error,
            the same sentences can be requested again

        Raises RuntimeError for a sentence that was requested before, or is in no document of
        `order`.
        """
        for sentence in sentences:
            while sentence not in self.ready:
                if not self._advance(translate):
                    raise RuntimeError(f"sentence {sentence} was requested twice or out of order")
        return [self.ready.pop(sentence) for sentence in sentences]

    def _advance(self, translate: Translate) -> bool:
        """Translates the next sentence of every active document; False if there is none."""
        self.active = [position for position in self.active if position.todo]
        while len(self.active) < self.side_by_side:
            document = next(self.waiting, None)
            if document is None:
                break
            position = self._begin(document)
            if position.todo:
                self.active.append(position)
        if not self.active:
            return False
        sentences = [position.todo[0] for position in self.active]
        contexts = [list(position.context) for position in self.active]
        translated = translate(sentences, contexts)
        for position, sentence, hypotheses in zip(self.active, sentences, translated, strict=True):
            self.ready[sentence] = hypotheses
            position.todo.popleft()
            position.context.append(hypotheses[0]["tokens"])
        if self.progress:
            self.progress(len(sentences), sum(not position.todo for position in self.active))
        return True

    def _begin(self, document: int) -> "_Position":
        sentences = self.documents.sentences_of(document)
        context = (self.known[i] for i in sentences if i in self.known)
        todo = (i for i in sentences if i not in self.known)
        return _Position(deque(todo), deque(context, maxlen=self.context))


class _Position(NamedTuple):
    """The sentences of a document that are not translated yet, and the last translations."""

    todo: deque[int]
    context: deque[Tensor]


class DocumentProgress:
    """Shows on a terminal (stderr) how many sentences are translated and how many documents ended.

    The bar appears after a second, and disappears when all sentences are translated.
    """

    def __init__(self, sentences: int, documents: int) -> None:
        self.sentences, self.documents = sentences, documents
        self.ended = 0
        self.bar: tqdm | None = None

    def __call__(self, sentences: int, ended: int) -> None:
        """Counts translated sentences, and the documents that ended with them."""
        if self.bar is None:
            self.bar = tqdm(
                total=self.sentences, unit=" sentences", leave=False, disable=None, delay=1
            )
        self.ended += ended
        self.bar.set_postfix_str(f"{self.ended} of {self.documents} documents", refresh=False)
        self.bar.update(sentences)
        if self.bar.n >= self.sentences:
            self.bar.close()


def documents_of_lines(lines: Sequence[Tensor]) -> Documents:
    """The documents of lines. An empty line (eos only) ends a document, and is itself a document.

    lines: sentences that end with eos
    """
    empty = [len(line) == 1 for line in lines]
    starts = [i for i in range(len(lines)) if i == 0 or empty[i] or empty[i - 1]]
    return Documents(starts, len(lines))


class Conversation:
    """The last sentences of the current document, and their translations.

    keep: number of sentences to keep, the largest number of context sentences

    memory: with --stream, of each model after these sentences; None at the beginning of a document
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.sources: list[Tensor] = []
        self.translations: list[Tensor] = []
        self.memory: list[DocumentMemory] | None = None

    def remember(self, source: Tensor, translation: Tensor) -> None:
        """Adds a sentence. An empty line ends the document and clears the conversation."""
        self.sources.append(source)
        self.translations.append(translation)
        kept = self.keep if len(source) > 1 else 0
        surplus = max(0, len(self.sources) - kept)
        del self.sources[:surplus]
        del self.translations[:surplus]
