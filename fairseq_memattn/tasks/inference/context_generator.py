"""fairseq's beam search after previous translations: a prefix, or the memory of a document."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from fairseq import utils
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor, nn

from fairseq_memattn.attention.nn.carried import DocumentMemory
from fairseq_memattn.data.documents.batches import similar_batches
from fairseq_memattn.data.documents.dataset import DocumentDataset
from fairseq_memattn.documents.decoder import Hypotheses
from fairseq_memattn.documents.windows import context_room, target_prefix
from fairseq_memattn.errors import MemAttnError, flag
from fairseq_memattn.host.correctness.lengths import with_limits

EncoderOuts = list[dict[str, Any]]
REFUSED = (
    *("print_alignment", "replace_unk", "constraints", "match_source_len", "prefix_size"),
    "lm_path",
)


class ContextEnsemble(EnsembleModel):
    """An ensemble whose hypotheses begin with a given prefix, which does not change their score.

    The tokens of the prefix have probability 1, so beam search searches and scores only the tokens
    after it. After the prefix, a hypothesis has at least `min_len` tokens and no separator. The
    prefix belongs to a row and not to the batch, so the translation of a sentence does not depend
    on the other sentences of its batch. The models read what all rows have of it once a sentence
    and in one call, or token by token where a decoder has no `read_on`.

    separator: index of the symbol between two sentences; None for models without one
    dictionary: fairseq's, of the target

    Besides the models' inputs, `net_input` has `prefixes` (B, P), padded on the right. They become
    the first of the encoder's outputs, so beam search repeats, reorders and removes them together
    with their rows.
    """

    def __init__(
        self, models: Sequence[nn.Module], separator: int | None, dictionary: Any, min_len: int
    ) -> None:
        super().__init__(models)
        self.separator, self.min_len, self.symbols = separator, min_len, len(dictionary)
        self.pad, self.eos = dictionary.pad(), dictionary.eos()

    def forward_encoder(self, net_input: dict[str, Tensor]) -> EncoderOuts:
        inputs = dict(net_input)
        prefixes = inputs.pop("prefixes")
        common = int(prefixes.ne(self.pad).sum(dim=1).min())
        given = {"prefixes": [prefixes], "common": [common], "sentences": [len(prefixes)]}
        return [given, *super().forward_encoder(inputs)]

    def forward_decoder(
        self,
        tokens: Tensor,
        encoder_outs: EncoderOuts,
        incremental_states: list[dict[str, Any]],
        temperature: float = 1.0,
    ) -> tuple[Tensor, Tensor | None]:
        given, *outs = encoder_outs
        (prefixes,), (common,), step = given["prefixes"], given["common"], tokens.shape[1] - 1
        if step < common and self.has_incremental_states():
            log_probs = torch.zeros(len(tokens), self.symbols, device=tokens.device)
        else:
            if step == common > 0 and self.has_incremental_states():
                beam = len(tokens) // given["sentences"][0]
                self._read(tokens[::beam, :-1], outs, incremental_states, beam)
            log_probs, _ = super().forward_decoder(tokens, outs, incremental_states, temperature)
        return self._restrict(log_probs, step, prefixes), None

    def _read(
        self, tokens: Tensor, outs: EncoderOuts, states: list[dict[str, Any]], beam: int
    ) -> None:
        """Writes the tokens (B, T), without padding, into empty states of B beam hypotheses."""
        rows = torch.arange(len(tokens), device=tokens.device)
        outs = super().reorder_encoder_out(outs, rows * beam)
        self._set_beam_size(1)
        for model, state, out in zip(self.models, states, outs, strict=True):
            if hasattr(model.decoder, "read_on"):
                model.decoder.read_on(tokens, state, encoder_out=out)
                continue
            for end in range(1, tokens.shape[1] + 1):
                model.decoder.extract_features(tokens[:, :end], out, state)
        self._set_beam_size(beam)
        self.reorder_incremental_state(states, rows.repeat_interleave(beam))

    def _set_beam_size(self, beam: int) -> None:
        for model in self.models:
            if hasattr(model, "set_beam_size"):
                model.set_beam_size(beam)

    def _restrict(self, log_probs: Tensor, step: int, prefixes: Tensor) -> Tensor:
        """Changes in place log_probs (rows, V) of the token at position `step`; returns them."""
        after_prefix = step - prefixes.ne(self.pad).sum(dim=1)
        if self.separator is not None:
            log_probs[:, self.separator] = -math.inf
        log_probs[after_prefix < self.min_len, self.eos] = -math.inf
        forced = after_prefix < 0
        if forced.any():
            log_probs[forced] = -math.inf
            log_probs[forced, prefixes[forced, step]] = 0.0
        return log_probs

    def reorder_encoder_out(self, encoder_outs: EncoderOuts, new_order: Tensor) -> EncoderOuts:
        given, *outs = encoder_outs
        moved = {**given, "prefixes": [given["prefixes"][0].index_select(0, new_order)]}
        return [moved, *super().reorder_encoder_out(outs, new_order)]


class SentenceGenerator:
    """Translates sentences of a `DocumentDataset`.

    generator: fairseq's generator over an ensemble, or its scorer of references
    max_tokens, max_sentences: limits of a batch, as fairseq counts them; None is no limit
    references: use the references as target context instead of the translations
    """

    def __init__(
        self,
        generator: SequenceGenerator | SequenceScorer,
        models: Sequence[FairseqEncoderDecoderModel],
        dataset: DocumentDataset,
        max_tokens: int | None,
        max_sentences: int | None,
        device: torch.device,
        *,
        references: bool = False,
    ) -> None:
        self.generator, self.models, self.dataset = generator, models, dataset
        self.limits = max_tokens, max_sentences
        self.device, self.references = device, references

    def _moved(self, batch: dict[str, Any]) -> dict[str, Any]:
        return utils.move_to_cuda(batch, self.device) if self.device.type == "cuda" else batch


class ContextGenerator(SentenceGenerator):
    """Translates sentences, given translations of their context. Takes a `ContextEnsemble`."""

    def __call__(
        self, sentences: Sequence[int], contexts: Sequence[Sequence[Tensor]]
    ) -> list[Hypotheses]:
        """The hypotheses of each sentence, best first, without their context.

        Tokens, positional scores and score are those of the sentence alone.

        contexts: the previous translations of each sentence, oldest first, each ending with eos
        """
        found: dict[int, Hypotheses] = {}
        rows = []
        for sentence, context in zip(sentences, contexts, strict=True):
            if len(self.dataset.source[sentence]) == 1:
                found[sentence] = [empty_hypothesis(self.dataset.options.eos)]
            else:
                context = self._reference(sentence) if self.references else context
                rows.append((sentence, self._prefix(sentence, context)))
        for batch in similar_batches(rows, self._tokens, *self.limits):
            work = self._score if isinstance(self.generator, SequenceScorer) else self._search
            with torch.no_grad():
                hypotheses = work(*map(list, zip(*batch, strict=True)))
            found |= zip((sentence for sentence, _ in batch), hypotheses, strict=True)
        return [found[sentence] for sentence in sentences]

    def _search(self, sentences: list[int], prefixes: list[Tensor]) -> list[Hypotheses]:
        generator, dataset = self.generator, self.dataset
        inputs = self._sources(sentences, prefixes)
        inputs["prefixes"] = dataset.collate.pad(prefixes, left=False)
        batch = self._moved({"id": torch.tensor(sentences), "net_input": inputs})
        # The largest numbers of tokens of prefixes and translations
        most = self._max_window() + len(dataset.options.target_start())
        pairs = zip(sentences, prefixes, strict=True)
        limits = torch.tensor([min(len(p) + self._max_length(s), most) for s, p in pairs])
        found = with_limits(generator, limits).generate(self.models, batch)
        return [
            self._without_prefix(hypotheses, len(prefix))
            for hypotheses, prefix in zip(found, prefixes, strict=True)
        ]

    def _score(self, sentences: list[int], prefixes: list[Tensor]) -> list[Hypotheses]:
        """Scores the references after their context with teacher forcing (--score-reference)."""
        dataset = self.dataset
        sources = self._sources(sentences, prefixes)
        start = len(dataset.options.target_start())
        rows = [
            torch.cat([prefix[start:], dataset.reference(sentence)])
            for sentence, prefix in zip(sentences, prefixes, strict=True)
        ]
        targets, inputs = dataset.collate.targets([[row] for row in rows], loss_on_window=True)
        batch = {"net_input": {**sources, "prev_output_tokens": inputs}, "target": targets}
        found = self.generator.generate(self.models, self._moved(batch))
        return [
            [_after(hypothesis, len(prefix), torch.mean) for hypothesis in hypotheses]
            for hypotheses, prefix in zip(found, prefixes, strict=True)
        ]

    def _sources(self, sentences: list[int], prefixes: list[Tensor]) -> dict[str, Tensor]:
        dataset = self.dataset
        windows = [
            dataset.sentences(dataset.source, sentence, int(dataset.source_counts[sentence]))
            for sentence in sentences
        ]
        separator = dataset.options.target_separator
        return dataset.collate.sources(windows, [int(p.eq(separator).sum()) for p in prefixes])

    def _reference(self, sentence: int) -> list[Tensor]:
        dataset = self.dataset
        back = int(dataset.target_counts[sentence])
        return dataset.sentences(dataset.target, sentence, back)[:-1]

    def _prefix(self, sentence: int, context: Sequence[Tensor]) -> Tensor:
        """What a translation follows: the start of a window, and the target context.

        Without the oldest sentences if the window would be too long.
        """
        options = self.dataset.options
        before = target_prefix(
            context,
            int(self.dataset.unlimited_counts[sentence]),
            context_room(self._max_length(sentence), self._max_window()),
            separator=options.target_separator,
            eos=options.eos,
        )
        return torch.cat([options.target_start(), before])

    def _max_window(self) -> int:
        """The largest number of tokens of context and translation together, without eos."""
        positions = min(model.max_decoder_positions() for model in self.models)
        return min(self.dataset.options.max_target, positions) - 1

    def _max_length(self, sentence: int) -> int:
        """The largest number of tokens of a translation, by --max-len-a and --max-len-b."""
        if isinstance(self.generator, SequenceScorer):
            return len(self.dataset.reference(sentence)) - 1  # without eos
        generator, length = self.generator, len(self.dataset.source[sentence])
        return max(int(generator.max_len_a * length + generator.max_len_b), generator.min_len)

    def _tokens(self, row: tuple[int, Tensor]) -> int:
        sentence, prefix = row
        current = len(self.dataset.source[sentence])
        return max(self.dataset.num_tokens(sentence), len(prefix) + current)

    def _without_prefix(self, hypotheses: Hypotheses, prefix: int) -> Hypotheses:
        alone = [_after(hypothesis, prefix, self._score_of) for hypothesis in hypotheses]
        return sorted(alone, key=lambda hypothesis: -float(hypothesis["score"]))

    def _score_of(self, scores: Tensor) -> Tensor:
        """The score of a hypothesis in fairseq's beam search. scores: (T,) log-probabilities."""
        if not self.generator.normalize_scores:
            return scores.sum()
        return scores.sum() / len(scores) ** self.generator.len_penalty


def empty_hypothesis(eos: int) -> dict[str, Any]:
    """The translation of an empty sentence."""
    return {
        "tokens": torch.tensor([eos]),
        "score": torch.tensor(0.0),
        "attention": torch.empty(0),
        "alignment": torch.empty(0),
        "positional_scores": torch.zeros(1),
    }


def _after(
    hypothesis: dict[str, Any], prefix: int, score: Callable[[Tensor], Tensor]
) -> dict[str, Any]:
    """The part of a hypothesis after its prefix. score: from the positional scores of this part"""
    scores = hypothesis["positional_scores"][prefix:]
    return {
        **hypothesis,
        "tokens": hypothesis["tokens"][prefix:],
        "positional_scores": scores,
        "score": score(scores),
        "attention": torch.empty(0),
    }


def check_generation(args: Any, target_context: int) -> None:
    """Raises MemAttnError for options of generation that do not work with the task.

    target_context: --target-context
    """
    for name in REFUSED:
        if getattr(args, name, None):
            raise MemAttnError(f"{flag(name)} does not work with --task document_translation")
    if getattr(args, "diverse_beam_groups", 0) > 1:
        raise MemAttnError("--diverse-beam-groups does not work with --task document_translation")
    if getattr(args, "no_repeat_ngram_size", 0) and target_context:
        raise MemAttnError(
            "--no-repeat-ngram-size would count the target context too; use --target-context 0"
        )


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
