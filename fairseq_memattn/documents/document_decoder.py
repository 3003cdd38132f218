"""Many documents side by side, each a sentence at a time, with every hypothesis fed back."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from fairseq_memattn.data.document_ids import Documents

Hypotheses = list[dict[str, Any]]
# Sentences, and for each the translations of the sentences before it -> hypotheses, best first.
Translate = Callable[[Sequence[int], Sequence[Sequence[Tensor]]], list[Hypotheses]]


class DocumentDecoder:
    """Translates documents on demand, in the order in which their sentences are asked for.

    translate: decodes sentences of different documents together
    documents: which sentences belong together
    order: the documents to decode, in the order in which they will be asked for
    context: how many translations are handed on
    side_by_side: how many documents advance together
    known: translations that exist already, by sentence
    """

    def __init__(
        self,
        translate: Translate,
        documents: Documents,
        order: Iterable[int],
        *,
        context: int,
        side_by_side: int,
        known: dict[int, Tensor] | None = None,
    ) -> None:
        self.translate, self.documents = translate, documents
        self.context, self.side_by_side = context, side_by_side
        self.waiting = iter(order)
        self.known = known or {}
        self.active: list[_Position] = []
        self.ready: dict[int, Hypotheses] = {}

    def hypotheses(self, sentences: Sequence[int]) -> list[Hypotheses]:
        """The hypotheses of sentences, best first; each sentence can be asked for once.

        Raises RuntimeError for a sentence that is not, or no longer, to be had.
        """
        found = []
        for sentence in sentences:
            while sentence not in self.ready:
                if not self._advance():
                    raise RuntimeError(f"sentence {sentence} was asked for twice, or out of turn")
            found.append(self.ready.pop(sentence))
        return found

    def _advance(self) -> bool:
        """Decodes the next sentence of every active document; False where nothing is left."""
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
        sentences = [position.todo.popleft() for position in self.active]
        contexts = [list(position.context) for position in self.active]
        translated = self.translate(sentences, contexts)
        for position, sentence, hypotheses in zip(self.active, sentences, translated, strict=True):
            self.ready[sentence] = hypotheses
            position.context.append(hypotheses[0]["tokens"])
        return True

    def _begin(self, document: int) -> "_Position":
        sentences = self.documents.sentences_of(document)
        position = _Position(self.context)
        position.context.extend(self.known[i] for i in sentences if i in self.known)
        position.todo.extend(i for i in sentences if i not in self.known)
        return position


class _Position:
    """How far a document has come."""

    def __init__(self, context: int) -> None:
        self.todo: deque[int] = deque()
        self.context: deque[Tensor] = deque(maxlen=context)
