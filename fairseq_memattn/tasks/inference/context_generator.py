"""fairseq's beam search after previous translations: a prefix, or the memory of a document."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import or_
from typing import Any

import torch
from fairseq import utils
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor, nn

from fairseq_memattn.attention.nn.carried import DocumentMemory
from fairseq_memattn.data.documents.batches import similar_batches
from fairseq_memattn.data.documents.collation import WindowCollater, for_models, own_inputs
from fairseq_memattn.data.documents.dataset import DocumentDataset
from fairseq_memattn.documents.decoder import Hypotheses
from fairseq_memattn.documents.windows import context_room, target_prefix
from fairseq_memattn.errors import MemAttnError, flag
from fairseq_memattn.host.correctness.lengths import cut_prefixes, with_limits
from fairseq_memattn.tasks.inference.context_search import ContextSearch

EncoderOuts = list[dict[str, Any]]
REFUSED = ("replace_unk", "match_source_len", "lm_path")
ALIGNMENTS = {"hard": utils.extract_hard_alignment, "soft": utils.extract_soft_alignment}


class ContextEnsemble(EnsembleModel):
    """An ensemble whose hypotheses begin with their target context, and have no separator after it.

    The models read what all rows have of it once a sentence and in one call, or token by token
    where a decoder has no `read_on`.

    separator: index of the symbol between two sentences; None for models without one
    dictionary: fairseq's, of the target
    with_attention: whether to return the weights of the source tokens, for alignments

    Besides the models' inputs, `net_input` has `common`, the number of tokens that all rows have of
    their context. A model gets its own inputs among those of the ensemble (`own_inputs`).
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        separator: int | None,
        dictionary: Any,
        with_attention: bool = False,
    ) -> None:
        super().__init__(models)
        self.separator, self.symbols = separator, len(dictionary)
        self.with_attention = with_attention

    def forward_encoder(self, net_input: dict[str, Any]) -> EncoderOuts:
        inputs = dict(net_input)
        given = {"common": inputs.pop("common"), "sentences": len(inputs["src_tokens"])}
        outs = [
            model.encoder.forward_torchscript(own_inputs(model, inputs)) for model in self.models
        ]
        return [given, *outs]

    def forward_decoder(
        self,
        tokens: Tensor,
        encoder_outs: EncoderOuts,
        incremental_states: list[dict[str, Any]],
        temperature: float = 1.0,
    ) -> tuple[Tensor, Tensor | None]:
        given, *outs = encoder_outs
        common, step = given["common"], tokens.shape[1] - 1
        if step < common and self.has_incremental_states():
            return torch.zeros(len(tokens), self.symbols, device=tokens.device), None
        if step == common > 0 and self.has_incremental_states():
            beam = len(tokens) // given["sentences"]
            self._read(tokens[::beam, :-1], outs, incremental_states, beam)
        log_probs, attention = super().forward_decoder(
            tokens, outs, incremental_states, temperature
        )
        if self.separator is not None:
            log_probs[:, self.separator] = -math.inf
        return log_probs, attention if self.with_attention else None

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

    def reorder_encoder_out(self, encoder_outs: EncoderOuts, new_order: Tensor) -> EncoderOuts:
        given, *outs = encoder_outs
        return [given, *super().reorder_encoder_out(outs, new_order)]


class SentenceGenerator:
    """Translates sentences of a `DocumentDataset`.

    generator: fairseq's generator over an ensemble, or its scorer of references
    max_tokens, max_sentences: limits of a batch, as fairseq counts them; None is no limit
    references: use the references as target context instead of the translations
    constraints: (N, C), words that each translation must have, as fairseq packs them

    The generator can have two attributes: `prefix_size`, the number of tokens of its reference with
    which each translation begins, and `print_alignment`, a key of ALIGNMENTS.
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
        constraints: Tensor | None = None,
    ) -> None:
        self.generator, self.models, self.dataset = generator, models, dataset
        self.collate = WindowCollater(for_models(dataset.options, models))
        self.constraints = constraints
        self.prefix_size: int = getattr(generator, "prefix_size", 0)
        self.alignment: str | None = getattr(generator, "print_alignment", None)
        if self.prefix_size and dataset.target is None:
            raise MemAttnError("--prefix-size needs references, which this input does not have")
        self.limits = max_tokens, max_sentences
        self.device, self.references = device, references

    def _given(self, sentences: list[int], contexts: Sequence[Tensor]) -> dict[str, Tensor]:
        """What the search is given of each sentence: its first tokens, and constraints.

        contexts: the tokens before those of the sentences
        """
        given = {}
        if self.prefix_size:
            begins = [self.dataset.reference(i)[: self.prefix_size] for i in sentences]
            rows = [torch.cat(pair) for pair in zip(contexts, begins, strict=True)]
            given["prefix_tokens"] = self.collate.pad(rows, left=False)
        if self.constraints is not None:
            given["constraints"] = self.constraints[sentences].to(self.device)
        return self._moved(given)

    def _alignment(self, weights: Tensor | None, tokens: Tensor, sentence: int) -> Any:
        """The alignment of the target tokens (T,) with those of the source sentence alone.

        weights: (S, T), of the tokens of the window
        """
        if weights is None or not weights.numel():
            raise MemAttnError("--print-alignment needs a model that returns its attention weights")
        options, source = self.dataset.options, self.dataset.source[sentence].long()
        end = len(weights)
        if not options.left_pad_source:
            first = sentence - int(self.dataset.source_counts[sentence])
            end = int(self.dataset.source_sizes[first : sentence + 1].sum())
            end += len(options.source_start())
        own = weights[end - len(source) : end].transpose(0, 1).cpu()
        extract = ALIGNMENTS[str(self.alignment)]
        return extract(own, source, tokens.cpu(), options.pad, options.eos)

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
        generator, options = self.generator, self.dataset.options
        inputs = self._sources(sentences, prefixes) | {"common": min(map(len, prefixes))}
        batch = self._moved({"id": torch.tensor(sentences), "net_input": inputs})
        contexts = self._moved({"": self.collate.pad(prefixes, left=False)})[""]
        search = ContextSearch(generator, contexts)
        # The largest numbers of tokens of prefixes and translations
        most = self._max_window() + len(options.target_start())
        pairs = zip(sentences, prefixes, strict=True)
        limits = torch.tensor([min(len(p) + self._max_length(s), most) for s, p in pairs])
        limited = with_limits(generator, limits, search)
        limited.repeat_ngram_blocker = None  # `ContextSearch` has it
        given, begun = self._given(sentences, prefixes), search.lengths
        if "prefix_tokens" in given:
            given["prefix_tokens"] = cut_prefixes(given["prefix_tokens"], limits, options.pad)
            begun = given["prefix_tokens"].ne(options.pad).sum(dim=1).cpu()
        limited.search.require(search.lengths + generator.min_len, begun)
        found = limited.generate(self.models, batch, **given)
        return [
            self._without_prefix(*each) for each in zip(found, sentences, prefixes, strict=True)
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
        targets, inputs = self.collate.targets([[row] for row in rows], loss_on_window=True)
        batch = {"net_input": {**sources, "prev_output_tokens": inputs}, "target": targets}
        aligns = bool(self.alignment)
        models = [_Bound(model, partial(own_inputs, model), aligns) for model in self.models]
        found = self.generator.generate(models, self._moved(batch))
        return [
            self._without_prefix(*each) for each in zip(found, sentences, prefixes, strict=True)
        ]

    def _sources(self, sentences: list[int], prefixes: list[Tensor]) -> dict[str, Any]:
        dataset = self.dataset
        windows = [
            dataset.sentences(dataset.source, sentence, int(dataset.source_counts[sentence]))
            for sentence in sentences
        ]
        separator = dataset.options.target_separator
        return self.collate.sources(windows, [int(p.eq(separator).sum()) for p in prefixes])

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

    def _without_prefix(self, hypotheses: Hypotheses, sentence: int, prefix: Tensor) -> Hypotheses:
        alone = []
        for hypothesis in hypotheses:
            own, weights = self._after(hypothesis, len(prefix)), hypothesis["attention"]
            if self.alignment:
                if isinstance(self.generator, SequenceScorer) and weights is not None:
                    weights = weights.transpose(0, 1)
                weights = None if weights is None else weights[..., len(prefix) :]
                own["alignment"] = self._alignment(weights, own["tokens"], sentence)
            alone.append(own)
        return sorted(alone, key=lambda hypothesis: -float(hypothesis["score"]))

    def _after(self, hypothesis: dict[str, Any], prefix: int) -> dict[str, Any]:
        """The part of a hypothesis after its prefix."""
        scores = hypothesis["positional_scores"][prefix:]
        if isinstance(self.generator, SequenceScorer):
            score = scores.mean()
        else:  # as in fairseq's search
            score = scores.sum()
            if self.generator.normalize_scores:
                score = score / len(scores) ** self.generator.len_penalty
        return {
            **hypothesis,
            "tokens": hypothesis["tokens"][prefix:],
            "positional_scores": scores,
            "score": score,
            "attention": torch.empty(0),
        }


def empty_hypothesis(eos: int) -> dict[str, Any]:
    """The translation of an empty sentence."""
    return {
        "tokens": torch.tensor([eos]),
        "score": torch.tensor(0.0),
        "attention": torch.empty(0),
        "alignment": torch.empty(0),
        "positional_scores": torch.zeros(1),
    }


def check_generation(args: Any) -> None:
    """Raises MemAttnError for options of generation that do not work with the task."""
    for name in REFUSED:
        if getattr(args, name, None):
            raise MemAttnError(f"{flag(name)} does not work with --task document_translation")


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


class _Bound(nn.Module):
    """A model that reads inputs of its own, in the form that fairseq's scorer calls.

    with_attention: return the weights of the source tokens, which the scorer adds up, so that all
        models must have them
    """

    def __init__(
        self,
        model: Any,
        read: Callable[[dict[str, Any]], dict[str, Any]],
        with_attention: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.read, self.with_attention = model, read, with_attention
        self.get_normalized_probs: Callable[..., Tensor] = model.get_normalized_probs

    def forward(self, **inputs: Any) -> Any:
        output = self.model(**self.read(inputs))
        return output if self.with_attention else (output[0], None)


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
            given = self._given(sentences, [torch.empty(0, dtype=torch.long)] * len(sentences))
            hypotheses = self.generator.generate(self.models, sample, **given)
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
        models = [
            _Bound(model, partial(or_, {"sentences": 1, "memory": memory}))
            for model, memory in zip(self.models, memories, strict=True)
        ]
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
                **inputs, prev_output_tokens=shifted, sentences=1, memory=memory, features_only=True
            )
            after.append(extra["memory"].rows())
        documents = [self.dataset.documents.of(sentence) for sentence in sentences]
        return {number: row for number, *row in zip(documents, *after, strict=True)}

    def _targets(self, rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        targets, inputs = self.dataset.collate.targets([[row.cpu()] for row in rows], True)
        moved = self._moved({"targets": targets, "inputs": inputs})
        return moved["targets"], moved["inputs"]
