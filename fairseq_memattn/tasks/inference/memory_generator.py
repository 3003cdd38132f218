"""fairseq's beam search with the memory of a document carried from sentence to sentence."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from fairseq.sequence_generator import EnsembleModel
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor, nn

from fairseq_memattn.attention.nn.carried import DocumentMemory
from fairseq_memattn.data.documents.batches import similar_batches
from fairseq_memattn.documents.decoder import Hypotheses
from fairseq_memattn.tasks.inference.context_generator import SentenceGenerator, empty_hypothesis

EncoderOuts = list[dict[str, Any]]
# The memories of open documents by their number, one for each model.
Memories = dict[int, list[DocumentMemory]]


class MemoryEnsemble(EnsembleModel):
    """An ensemble whose models begin a sentence with the memory of the document.

    Besides the models' inputs, `net_input` has `memories`, one for each model, of as many rows.
    They become the first of the encoder's outputs, which beam search repeats, and are given to the
    decoders at the first step.
    """

    def forward_encoder(self, net_input: dict[str, Any]) -> EncoderOuts:
        inputs = dict(net_input)
        memories = {"memories": inputs.pop("memories")}
        return [memories, *super().forward_encoder(inputs)]

    def forward_decoder(
        self,
        tokens: Tensor,
        encoder_outs: EncoderOuts,
        incremental_states: list[dict[str, Any]],
        temperature: float = 1.0,
    ) -> tuple[Tensor, Tensor | None]:
        given, *outs = encoder_outs
        memories = given.pop("memories", None)
        if memories is not None:
            parts = zip(self.models, incremental_states, outs, memories, strict=True)
            for model, state, out, memory in parts:
                model.decoder.begin_sentence(state, out, memory)
        return super().forward_decoder(tokens, outs, incremental_states, temperature)

    def reorder_encoder_out(self, encoder_outs: EncoderOuts, new_order: Tensor) -> EncoderOuts:
        given, *outs = encoder_outs
        moved = {name: [m.reorder(new_order) for m in memories] for name, memories in given.items()}
        return [moved, *super().reorder_encoder_out(outs, new_order)]


class _Begun(nn.Module):
    """A model that begins with a given memory, in the form that fairseq's scorer calls."""

    def __init__(self, model: Any, memory: DocumentMemory) -> None:
        super().__init__()
        self.model, self.memory = model, memory
        self.get_normalized_probs: Callable[..., Tensor] = model.get_normalized_probs

    def forward(self, **inputs: Any) -> Any:
        return self.model(**inputs, sentences=1, memory=self.memory)


class MemoryGenerator(SentenceGenerator):
    """Translates the next sentences of documents, each from the memory of its document.

    A memory holds the sentences before with their best translations, or with `references`. Takes a
    `MemoryEnsemble`.

    memories: of the open documents, which a call replaces unless it raises an error; a document
        without one begins
    """

    def __init__(self, *args: Any, memories: Memories, **options: Any) -> None:
        super().__init__(*args, **options)
        self.memories = memories

    def __call__(
        self, sentences: Sequence[int], contexts: Sequence[Sequence[Tensor]]
    ) -> list[Hypotheses]:
        """The hypotheses of each sentence, best first. The memories have the contexts already.

        An empty sentence has an empty translation, and is not written into the memory.
        """
        found: dict[int, Hypotheses] = {}
        after: Memories = {}
        sizes = self.dataset.source_sizes
        full = [i for i in sentences if sizes[i] > 1]
        for batch in similar_batches(full, lambda i: int(sizes[i]), *self.limits):
            with torch.no_grad():
                hypotheses, memories = self._translate(batch)
            found |= zip(batch, hypotheses, strict=True)
            after |= memories
        self.memories |= after
        empty = [empty_hypothesis(self.dataset.options.eos)]
        return [found.get(sentence, empty) for sentence in sentences]

    def _translate(self, sentences: list[int]) -> tuple[list[Hypotheses], Memories]:
        """The hypotheses of each sentence, and the memories of their documents after it."""
        dataset = self.dataset
        inputs = dataset.collate.source_rows([dataset.source[i] for i in sentences])
        inputs = self._moved(inputs)
        memories = self._begin(sentences)
        if isinstance(self.generator, SequenceScorer):
            hypotheses = self._score(sentences, inputs, memories)
        else:
            sample = {"id": torch.tensor(sentences), "net_input": inputs | {"memories": memories}}
            hypotheses = self.generator.generate(self.models, sample)
        read = [best[0]["tokens"] for best in hypotheses]
        if self.references:
            read = [dataset.reference(sentence) for sentence in sentences]
        return hypotheses, self._read(sentences, inputs, read, memories)

    def _begin(self, sentences: list[int]) -> list[DocumentMemory]:
        """The memory of each model, with a row for each sentence."""
        documents = [self.dataset.documents.of(sentence) for sentence in sentences]
        rows = [self.memories.get(document) for document in documents]
        return [
            DocumentMemory.stacked(
                [model.decoder.empty_memory(1) if row is None else row[number] for row in rows]
            )
            for number, model in enumerate(self.models)
        ]

    def _score(
        self, sentences: list[int], inputs: dict[str, Tensor], memories: list[DocumentMemory]
    ) -> list[Hypotheses]:
        """Scores the references with teacher forcing (--score-reference)."""
        targets, shifted = self._targets([self.dataset.reference(i) for i in sentences])
        models = [_Begun(*pair) for pair in zip(self.models, memories, strict=True)]
        batch = {"net_input": inputs | {"prev_output_tokens": shifted}, "target": targets}
        found: list[Hypotheses] = self.generator.generate(models, batch)
        return found

    def _read(
        self,
        sentences: list[int],
        inputs: dict[str, Tensor],
        targets: Sequence[Tensor],
        memories: list[DocumentMemory],
    ) -> Memories:
        """The memories with sentences and their translations."""
        _, shifted = self._targets(targets)
        after = []
        for model, memory in zip(self.models, memories, strict=True):
            _, extra = model(
                **inputs,
                prev_output_tokens=shifted,
                sentences=1,
                memory=memory,
                features_only=True,
            )
            after.append(extra["memory"].rows())
        documents = [self.dataset.documents.of(sentence) for sentence in sentences]
        return {number: row for number, *row in zip(documents, *after, strict=True)}

    def _targets(self, rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        targets, inputs = self.dataset.collate.targets([[row.cpu()] for row in rows], True)
        moved = self._moved({"targets": targets, "inputs": inputs})
        return moved["targets"], moved["inputs"]
