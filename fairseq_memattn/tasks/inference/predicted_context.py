"""Translates documents with their predicted target context, outside of fairseq's commands."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_memattn.data.documents.collation import WindowOptions
from fairseq_memattn.data.documents.dataset import DocumentDataset
from fairseq_memattn.documents.ids import Documents
from fairseq_memattn.tasks.inference.context_generator import ContextEnsemble
from fairseq_memattn.tasks.inference.memory_generator import MemoryEnsemble
from fairseq_memattn.tasks.inference.session import DocumentSession, SessionOptions

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
        symbols = (separator, dictionary.pad(), dictionary.eos())
        ensemble = ContextEnsemble(models, *symbols, min_len=1)
        if stream:
            ensemble = MemoryEnsemble(models)
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
