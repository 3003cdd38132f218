"""The beam search of fairseq-generate over the sentences of documents, with transformers."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessorList, SuppressTokensLogitsProcessor

from fairseq_memattn.documents.decoder import DocumentDecoder, Hypotheses
from fairseq_memattn.documents.ids import Documents
from fairseq_memattn.documents.windows import (
    context_counts,
    context_room,
    joined,
    target_context_counts,
    target_prefix,
    window_sizes,
)
from fairseq_memattn.transformers.search import OwnLimits
from fairseq_memattn.transformers.translation_settings import SearchOptions, TranslationSettings


class Separators(NamedTuple):
    """The index of the symbol between two sentences in either dictionary; None without context."""

    source: int | None
    target: int | None


class Row(NamedTuple):
    """A sentence to translate.

    window: the sentences of the source, oldest first; prefix: (P,), the target context
    length: the largest number of tokens of the translation, without eos
    """

    window: list[Tensor]
    prefix: Tensor
    length: int


class DocumentSearch:
    """Translates the sentences of some documents.

    sentences: of all documents, each ending with eos; lengths: the sentences of each document
    left_pad_source: whether the source is padded on the left
    """

    def __init__(
        self,
        model: Any,
        settings: TranslationSettings,
        options: SearchOptions,
        separators: Separators,
        *,
        left_pad_source: bool,
    ) -> None:
        self.model, self.settings, self.options = model, settings, options
        self.separators, self.left_pad_source = separators, left_pad_source
        config = model.config
        self.start, self.pad, self.eos = (
            int(getattr(config, f"{name}_token_id")) for name in ("decoder_start", "pad", "eos")
        )

    def translate(
        self, sentences: list[Tensor], lengths: list[int], progress: Callable[[int], object]
    ) -> list[Tensor]:
        """The tokens of the best translation of each sentence, which end with eos.

        sentences: of all documents, each ending with eos; lengths: their number in each document
        progress: called with the number of sentences that were translated in one call
        """
        ends = np.cumsum([0, *lengths])
        documents = Documents(ends[:-1], len(sentences))
        windows = Windows(sentences, documents, self.settings)
        order = list(range(len(documents)))
        if not self.settings.target_context:
            # The sentences do not depend on each other: similar lengths fill the batches best.
            documents = Documents(np.arange(len(sentences)), len(sentences))
            order = np.argsort(-windows.tokens(), kind="stable").tolist()
        decoder = DocumentDecoder(
            documents,
            order,
            context=self.settings.target_context,
            side_by_side=self.options.batch_size,
            progress=lambda count, _: progress(count),
        )

        def work(numbers: Sequence[int], contexts: Sequence[Sequence[Tensor]]) -> list[Hypotheses]:
            return self._hypotheses(windows, numbers, contexts)

        found = decoder.hypotheses(range(len(sentences)), work)
        return [best["tokens"] for best, *_ in found]

    def _hypotheses(
        self,
        windows: "Windows",
        sentences: Sequence[int],
        contexts: Sequence[Sequence[Tensor]],
    ) -> list[Hypotheses]:
        """One hypothesis of each sentence; that of an empty one is empty."""
        found = {i: torch.tensor([self.eos]) for i in sentences}
        rows = {
            i: self._row(windows, i, context)
            for i, context in zip(sentences, contexts, strict=True)
            if len(windows.sentences[i]) > 1
        }
        for batch in self._batches(rows):
            found |= zip(batch, self._generated([rows[i] for i in batch]), strict=True)
        return [[{"tokens": found[i]}] for i in sentences]

    def _row(self, windows: "Windows", sentence: int, context: Sequence[Tensor]) -> Row:
        options, most = self.options, self._most()
        size = len(windows.sentences[sentence])
        length = max(int(options.max_len_a * size + options.max_len_b), 1)
        prefix = torch.empty(0, dtype=torch.long)
        if self.separators.target is not None:
            prefix = target_prefix(
                context,
                int(windows.target_counts[sentence]),
                context_room(length, most),
                separator=self.separators.target,
                eos=self.eos,
            )
        return Row(windows.source(sentence), prefix, min(length, most - len(prefix)))

    def _most(self) -> int:
        """The largest number of tokens of context and translation, without eos."""
        return self.settings.max_target - 1

    def _batches(self, rows: dict[int, Row]) -> list[list[int]]:
        """Rows that fit together: with the padding of the prefixes, none has too many tokens."""
        batches: list[list[int]] = []
        width, longest = 0, 0
        for i in sorted(rows, key=lambda i: len(rows[i].prefix), reverse=True):
            longest = max(longest, rows[i].length)
            if not batches or width + longest > self._most():
                batches.append([])
                width, longest = len(rows[i].prefix), rows[i].length
            batches[-1].append(i)
        return batches

    @torch.no_grad()
    def _generated(self, rows: list[Row]) -> list[Tensor]:
        """The tokens of the best translation of each row."""
        device, options = self.model.device, self.options
        starts = [torch.cat([torch.tensor([self.start]), row.prefix]) for row in rows]
        inputs = self._sources(rows) | self._padded(starts, "decoder_input_ids", left=True)
        prompt = inputs["decoder_input_ids"].shape[1]
        limits = torch.tensor([row.length for row in rows], device=device)
        processors: list[Any] = [OwnLimits(limits, self.pad, self.eos)]
        if self.separators.target is not None:
            forbidden = [self.separators.target]
            processors.append(SuppressTokensLogitsProcessor(forbidden, device=device))
        several = options.beam > 1
        found = self.model.generate(
            **{name: x.to(device) for name, x in inputs.items()},
            num_beams=options.beam,
            length_penalty=options.lenpen if several else 1.0,
            early_stopping=several,
            logits_processor=LogitsProcessorList(processors),
            do_sample=False,
            min_new_tokens=1,
            max_new_tokens=int(limits.max()) + 1,
        )
        return [self._until_eos(row) for row in found[:, prompt:].cpu()]

    def _until_eos(self, tokens: Tensor) -> Tensor:
        return tokens[: int(tokens.eq(self.eos).int().argmax()) + 1]

    def _sources(self, rows: list[Row]) -> dict[str, Tensor]:
        """The encoder's inputs for B windows."""
        separator = self.separators.source
        if separator is not None and not self.settings.as_sequences:
            windows = [joined(row.window, separator) for row in rows]
            return self._padded(windows, "input_ids", left=self.left_pad_source)
        current = [row.window[-1] for row in rows]
        inputs = self._padded(current, "input_ids", left=self.left_pad_source)
        if not self.settings.as_sequences:
            return inputs
        target = self.separators.target
        before = [0 if target is None else int(row.prefix.eq(target).sum()) for row in rows]
        return inputs | {"target_context": torch.tensor(before)} | self._context(rows)

    def _context(self, rows: list[Row]) -> dict[str, Tensor]:
        """context_input_ids (B, K, S') of the previous sentences, and their mask."""
        count = max(len(row.window) for row in rows) - 1
        if not count:
            return {}
        empty = torch.empty(0, dtype=torch.long)
        context = [[empty] * (count + 1 - len(row.window)) + row.window[:-1] for row in rows]
        flat = self._padded(sum(context, []), "context_input_ids", left=False)
        return {name: x.view(len(rows), count, -1) for name, x in flat.items()}

    def _padded(self, rows: list[Tensor], name: str, *, left: bool) -> dict[str, Tensor]:
        """The rows as one tensor (B, T) under a name, and their mask."""
        masks = [torch.ones_like(row) for row in rows]
        side = "left" if left else "right"
        tokens, mask = (
            torch.nn.utils.rnn.pad_sequence(
                x, batch_first=True, padding_value=value, padding_side=side
            )
            for x, value in ((rows, self.pad), (masks, 0))
        )
        return {name: tokens, name.replace("input_ids", "attention_mask"): mask}


class Windows:
    """The windows of the source, and the numbers of previous sentences.

    sentences: of all documents, each ending with eos
    """

    def __init__(
        self, sentences: list[Tensor], documents: Documents, settings: TranslationSettings
    ) -> None:
        self.sentences = sentences
        self.sizes = np.array([len(tokens) for tokens in sentences], dtype=np.int64)
        first = documents.first_sentences()
        contexts = settings.source_context, settings.target_context
        self.source_counts = context_counts(self.sizes, first, contexts[0], settings.max_source)
        available = np.arange(len(first)) - first
        self.target_counts = target_context_counts(self.source_counts, available, *contexts)

    def source(self, sentence: int) -> list[Tensor]:
        """The sentences of a window, oldest first."""
        back = int(self.source_counts[sentence])
        return self.sentences[sentence - back : sentence + 1]

    def tokens(self) -> "np.ndarray[Any, Any]":
        """(S,), the tokens of each window."""
        return window_sizes(self.sizes, self.source_counts)
