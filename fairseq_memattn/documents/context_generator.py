"""fairseq's beam search behind a target context of its own for every sentence."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from fairseq import utils
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor, nn

from fairseq_memattn.documents.document_dataset import DocumentDataset
from fairseq_memattn.documents.document_decoder import Hypotheses
from fairseq_memattn.documents.sentence_windows import joined

EncoderOuts = list[dict[str, list[Tensor]]]


class ContextEnsemble(EnsembleModel):
    """An ensemble whose every hypothesis begins with a given prefix, which costs nothing.

    Beam search sees probability 1 for the tokens of the prefix, so that only what follows is
    searched and scored. Behind it, hypotheses end after `limits` tokens at the latest and never
    hold the separator. All this by row and not by batch, so that a sentence's translation does
    not depend on which others it is decoded with.
    """

    def __init__(self, models: Sequence[nn.Module], separator: int, pad: int, eos: int) -> None:
        super().__init__(models)
        self.separator, self.pad, self.eos = separator, pad, eos
        self.min_len = 1

    def begin(self, prefixes: Tensor, limits: Tensor) -> None:
        """prefixes: (B, P), padded on the right; limits: (B,) tokens behind the prefix."""
        self.prefixes, self.limits = prefixes, limits
        self.lengths = prefixes.ne(self.pad).sum(dim=1)

    def forward_decoder(
        self,
        tokens: Tensor,
        encoder_outs: EncoderOuts,
        incremental_states: list[dict[str, Any]],
        temperature: float = 1.0,
    ) -> tuple[Tensor, Tensor | None]:
        log_probs, _ = super().forward_decoder(
            tokens, encoder_outs, incremental_states, temperature
        )
        return self._restrict(log_probs, tokens.shape[1] - 1), None

    def _restrict(self, log_probs: Tensor, step: int) -> Tensor:
        """log_probs: (rows, V), of the token at position `step` of every row."""
        written = step - self.lengths
        log_probs[:, self.separator] = -math.inf
        log_probs[written < self.min_len, self.eos] = -math.inf
        full = written >= self.limits
        log_probs[full, : self.eos] = -math.inf
        log_probs[full, self.eos + 1 :] = -math.inf
        forced = written < 0
        if forced.any():
            log_probs[forced] = -math.inf
            log_probs[forced, self.prefixes[forced, step]] = 0.0
        return log_probs

    def reorder_encoder_out(self, encoder_outs: EncoderOuts, new_order: Tensor) -> EncoderOuts:
        """fairseq's hook: rows that beam search copies, moves and drops."""
        for name in ("prefixes", "limits", "lengths"):
            setattr(self, name, getattr(self, name).index_select(0, new_order))
        return super().reorder_encoder_out(encoder_outs, new_order)


class ContextGenerator:
    """Translates sentences of a `DocumentDataset` behind given translations of their context.

    generator: fairseq's, over a `ContextEnsemble`, or its scorer of references
    max_tokens, max_sentences: of a batch, as fairseq counts them; None is no limit
    references: whether the target context is the references' and not the translations'
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
        self.max_tokens, self.max_sentences = max_tokens, max_sentences
        self.device, self.references = device, references

    def __call__(
        self, sentences: Sequence[int], contexts: Sequence[Sequence[Tensor]]
    ) -> list[Hypotheses]:
        """contexts: for each sentence the translations before it, oldest first, each with its eos.

        Returns for each sentence its hypotheses, best first: tokens and positional scores of the
        sentence alone, and its score.
        """
        found: dict[int, Hypotheses] = {}
        rows = []
        for sentence, context in zip(sentences, contexts, strict=True):
            if len(self.dataset.source[sentence]) == 1:
                found[sentence] = [self._nothing()]
            else:
                context = self._reference(sentence) if self.references else context
                rows.append((sentence, self._prefix(sentence, context)))
        for batch in self._batches(rows):
            work = self._score if isinstance(self.generator, SequenceScorer) else self._search
            with torch.no_grad():
                hypotheses = work(*map(list, zip(*batch, strict=True)))
            found |= zip((sentence for sentence, _ in batch), hypotheses, strict=True)
        return [found[sentence] for sentence in sentences]

    def _search(self, sentences: list[int], prefixes: list[Tensor]) -> list[Hypotheses]:
        generator, dataset = self.generator, self.dataset
        limits = [self._limit(s, len(p)) for s, p in zip(sentences, prefixes, strict=True)]
        sources = self._sources(sentences, prefixes)
        batch = {"id": torch.tensor(sentences), "net_input": sources}
        batch = utils.move_to_cuda(batch, self.device) if self.device.type == "cuda" else batch
        padded = dataset.collate.pad(prefixes, left=False).to(self.device)
        generator.model.begin(padded, torch.tensor(limits, device=self.device))
        generator.model.min_len = generator.min_len
        # `begin` sets a limit for each row; this one only has to leave room for all of them.
        room = zip(prefixes, limits, strict=True)
        a_and_b = generator.max_len_a, generator.max_len_b
        generator.max_len_a, generator.max_len_b = 0, max(len(p) + limit for p, limit in room)
        try:
            found = generator.generate(self.models, batch)
        finally:
            generator.max_len_a, generator.max_len_b = a_and_b
        return [
            self._without_prefix(hypotheses, len(prefix))
            for hypotheses, prefix in zip(found, prefixes, strict=True)
        ]

    def _score(self, sentences: list[int], prefixes: list[Tensor]) -> list[Hypotheses]:
        """Teacher forcing (--score-reference): the reference behind the context."""
        dataset = self.dataset
        sources = self._sources(sentences, prefixes)
        rows = [
            torch.cat([prefix, dataset.reference(sentence)])
            for sentence, prefix in zip(sentences, prefixes, strict=True)
        ]
        targets, inputs = dataset.collate.targets([[row] for row in rows], loss_on_window=True)
        batch = {"net_input": {**sources, "prev_output_tokens": inputs}, "target": targets}
        batch = utils.move_to_cuda(batch, self.device) if self.device.type == "cuda" else batch
        found = self.generator.generate(self.models, batch)
        for hypotheses, prefix in zip(found, prefixes, strict=True):
            for hypothesis in hypotheses:
                _cut(hypothesis, len(prefix))
                hypothesis["score"] = hypothesis["positional_scores"].mean()
        return found

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
        """The context as the decoder saw it in training: each sentence behind it a separator."""
        options = self.dataset.options
        count = int(self.dataset.target_counts[sentence])
        context = list(context)[max(0, len(context) - count) :]
        room = self._longest() - min(self._wanted(sentence), self._longest() // 2)
        while sum(map(len, context)) > room:
            context.pop(0)
        end = torch.tensor([options.eos])
        return joined([*(tokens.cpu() for tokens in context), end], options.target_separator)[:-1]

    def _longest(self) -> int:
        """The most tokens, without eos, of context and translation together."""
        positions = min(model.max_decoder_positions() for model in self.models)
        return min(self.dataset.options.max_target, positions) - 1

    def _wanted(self, sentence: int) -> int:
        """How long a translation may be: --max-len-a and --max-len-b, of the current sentence."""
        if isinstance(self.generator, SequenceScorer):
            return len(self.dataset.reference(sentence))
        length = len(self.dataset.source[sentence])
        return int(self.generator.max_len_a * length + self.generator.max_len_b)

    def _limit(self, sentence: int, prefix: int) -> int:
        return min(self._wanted(sentence), self._longest() - prefix)

    def _batches(self, rows: list[tuple[int, Tensor]]) -> list[list[tuple[int, Tensor]]]:
        """Rows of about the same length together, as many as the limits allow."""

        def tokens(row: tuple[int, Tensor]) -> int:
            sentence, prefix = row
            current = len(self.dataset.source[sentence])
            return max(self.dataset.num_tokens(sentence), len(prefix) + current)

        batches: list[list[tuple[int, Tensor]]] = []
        for row in sorted(rows, key=tokens, reverse=True):
            limit = self.max_sentences or len(rows)
            if self.max_tokens and batches:
                limit = min(limit, self.max_tokens // max(tokens(batches[-1][0]), 1))
            if not batches or len(batches[-1]) >= limit:
                batches.append([])
            batches[-1].append(row)
        return batches

    def _without_prefix(self, hypotheses: Hypotheses, prefix: int) -> Hypotheses:
        for hypothesis in hypotheses:
            _cut(hypothesis, prefix)
            scores = hypothesis["positional_scores"]
            hypothesis["score"] = scores.sum()
            if self.generator.normalize_scores:
                hypothesis["score"] /= len(scores) ** self.generator.len_penalty
        return sorted(hypotheses, key=lambda hypothesis: -float(hypothesis["score"]))

    def _nothing(self) -> dict[str, Any]:
        """The translation of an empty sentence."""
        return {
            "tokens": torch.tensor([self.dataset.options.eos]),
            "score": torch.tensor(0.0),
            "attention": torch.empty(0),
            "alignment": torch.empty(0),
            "positional_scores": torch.zeros(1),
        }


def _cut(hypothesis: dict[str, Any], prefix: int) -> None:
    hypothesis["tokens"] = hypothesis["tokens"][prefix:]
    hypothesis["positional_scores"] = hypothesis["positional_scores"][prefix:]
    hypothesis["attention"] = torch.empty(0)
