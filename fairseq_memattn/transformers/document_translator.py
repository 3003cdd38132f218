"""Documents in, their translations out, with a folder that `memattn export` has written."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from transformers import (
    AutoConfig,
    AutoTokenizer,
    LogitsProcessorList,
    SuppressTokensLogitsProcessor,
)

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
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.transformers import trained_weights
from fairseq_memattn.transformers.search import OwnLimits
from fairseq_memattn.transformers.translation_settings import SearchOptions, settings_of


class SentenceError(MemAttnError):
    """A sentence that cannot be translated.

    document, sentence: their numbers, from 0; reason: the message without them
    """

    def __init__(self, document: int, sentence: int, reason: str) -> None:
        super().__init__(f"document {document + 1}, sentence {sentence + 1}: {reason}")
        self.document, self.sentence, self.reason = document, sentence, reason


class DocumentTranslator:
    """Translates documents. The translations of the previous sentences are the target context.

        translator = DocumentTranslator.from_pretrained(FOLDER)
        translator.translate([["A sentence.", "The next one."], ["Another document."]])

    model, tokenizer: of a model of --task document_translation, or translation, which translates
        each sentence by itself

    Raises MemAttnError for a model of another task.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self.settings = settings_of(model.config, "the model")
        symbol = self.settings.separator
        self.separators = Separators(None, None)
        if symbol is not None:
            vocabularies = tokenizer.get_vocab(), tokenizer.get_tgt_vocab()
            self.separators = Separators(*(words[symbol] for words in vocabularies))
        tokens = self.settings.source_token, self.settings.target_token
        self.starts = [
            torch.tensor([] if one is None else [words[one]], dtype=torch.long)
            for one, words in zip(tokens, (tokenizer.source.ids, tokenizer.target.ids), strict=True)
        ]

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, device: str | torch.device = "cpu", **options: Any
    ) -> "DocumentTranslator":
        """The translator of a folder that `memattn export` has written.

        options: of the model's `from_pretrained`, such as `dtype`

        Raises MemAttnError for another folder, weights that are damaged, missing or not finite, a
        tokenizer that lacks files, and a model of another task.
        """
        if not Path(folder, "config.json").is_file():
            raise MemAttnError(
                f"{folder} is not a folder that `memattn export` has written: it has no config.json"
            )
        try:
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            if "trust_remote_code" in str(error):
                reason = "it needs code of its own, which is not run"
            raise MemAttnError(f"{folder} is not a folder of `memattn export`: {reason}") from error
        settings_of(config, str(folder))
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            raise MemAttnError(f"{folder}: the tokenizer cannot be read: {reason}") from None
        return cls(trained_weights.load(folder, **options).to(device), tokenizer)

    def translate(
        self, documents: Sequence[Sequence[str]], *, progress: bool = False, **options: Any
    ) -> list[list[str]]:
        """The translation of each sentence of each document, as fairseq-generate translates it.

        An empty sentence has an empty translation. A translation does not depend on `batch_size`,
        which is the number of documents side by side, or, without target context, of sentences.

        options: of `SearchOptions`; progress: show a progress bar on a terminal (stderr)

        Raises SentenceError for a sentence with more tokens than the model reads, or with the
        separator, and TypeError for a string in the place of a document.
        """
        if isinstance(documents, str) or any(isinstance(document, str) for document in documents):
            raise TypeError("`documents` must be lists of sentences, but one is a string.")
        search = SearchOptions(**options)
        sentences = [
            self._encoded(number, index, text)
            for number, document in enumerate(documents)
            for index, text in enumerate(document)
        ]
        hidden = None if progress else True
        with tqdm(total=len(sentences), unit=" sentences", leave=False, disable=hidden) as bar:
            lengths = [len(one) for one in documents]
            found = DocumentSearch(self, search, sentences, lengths).translate(bar.update)
        texts = (self.tokenizer.decode(one.tolist(), skip_special_tokens=True) for one in found)
        return [[next(texts) for _ in document] for document in documents]

    def _encoded(self, document: int, sentence: int, text: str) -> Tensor:
        """The tokens of a sentence, which end with eos."""
        tokens = self.tokenizer(text, verbose=False)["input_ids"]
        limit = self.settings.max_source - len(self.starts[0])
        if len(tokens) > limit:
            reason = f"the model reads at most {limit} tokens, but the sentence has {len(tokens)}"
            raise SentenceError(document, sentence, reason)
        if self.separators.source is not None and self.separators.source in tokens:
            reason = f"the sentence contains the separator {self.settings.separator!r} of sentences"
            raise SentenceError(document, sentence, reason)
        return torch.tensor(tokens)


class Separators(NamedTuple):
    """The index of the symbol between two sentences in either dictionary; None without context."""

    source: int | None
    target: int | None


class Row(NamedTuple):
    """A sentence to translate.

    window: the sentences of the source, oldest first
    prefix: (P,), the start of the target's window and its context
    length: the largest number of tokens of the translation, without eos
    """

    window: list[Tensor]
    prefix: Tensor
    length: int


class DocumentSearch:
    """The beam search of fairseq-generate over the sentences of some documents.

    sentences: of all documents, each ending with eos; lengths: their number in each document
    """

    def __init__(
        self,
        translator: "DocumentTranslator",
        options: SearchOptions,
        sentences: list[Tensor],
        lengths: list[int],
    ) -> None:
        self.model, self.settings = translator.model, translator.settings
        self.options, self.separators = options, translator.separators
        self.source_start, self.target_start = translator.starts
        self.left_pad_source = translator.tokenizer.padding_side == "left"
        self.start, self.pad, self.eos = (
            int(getattr(self.model.config, f"{name}_token_id"))
            for name in ("decoder_start", "pad", "eos")
        )
        self.sentences = sentences
        self.sizes = np.array([len(tokens) for tokens in sentences], dtype=np.int64)
        self.documents = Documents(np.cumsum([0, *lengths])[:-1], len(sentences))
        first, settings = self.documents.first_sentences(), self.settings
        contexts = settings.source_context, settings.target_context
        # How many previous sentences each has in its window.
        room = settings.max_source - len(self.source_start)
        self.source_counts = context_counts(self.sizes, first, contexts[0], room)
        available = np.arange(len(first)) - first
        self.target_counts = target_context_counts(self.source_counts, available, *contexts)
        self.most = settings.max_target - 1  # tokens of context and translation, without eos

    def translate(self, progress: Callable[[int], object]) -> list[Tensor]:
        """The tokens of the best translation of each sentence, which end with eos.

        progress: called with the number of sentences that were translated in one call
        """
        documents, order = self.documents, list(range(len(self.documents)))
        if not self.settings.target_context:
            # The sentences do not depend on each other: similar lengths fill the batches best.
            documents = Documents(np.arange(len(self.sentences)), len(self.sentences))
            tokens = window_sizes(self.sizes, self.source_counts)
            order = np.argsort(-tokens, kind="stable").tolist()
        decoder = DocumentDecoder(
            documents,
            order,
            context=self.settings.target_context,
            side_by_side=self.options.batch_size,
            progress=lambda count, _: progress(count),
        )
        found = decoder.hypotheses(range(len(self.sentences)), self._hypotheses)
        return [best["tokens"] for best, *_ in found]

    def _hypotheses(
        self, sentences: Sequence[int], contexts: Sequence[Sequence[Tensor]]
    ) -> list[Hypotheses]:
        """One hypothesis of each sentence; that of an empty one is empty."""
        found = {i: torch.tensor([self.eos]) for i in sentences}
        rows = {
            i: self._row(i, context)
            for i, context in zip(sentences, contexts, strict=True)
            if self.sizes[i] > 1
        }
        for batch in self._batches(rows):
            found |= zip(batch, self._generated([rows[i] for i in batch]), strict=True)
        return [[{"tokens": found[i]}] for i in sentences]

    def _row(self, sentence: int, context: Sequence[Tensor]) -> Row:
        options, size = self.options, int(self.sizes[sentence])
        length = max(int(options.max_len_a * size + options.max_len_b), 1)
        prefix = torch.empty(0, dtype=torch.long)
        if self.separators.target is not None:
            prefix = target_prefix(
                context,
                int(self.target_counts[sentence]),
                context_room(length, self.most - len(self.target_start)),
                separator=self.separators.target,
                eos=self.eos,
            )
        prefix = torch.cat([self.target_start, prefix])
        window = self.sentences[sentence - int(self.source_counts[sentence]) : sentence + 1]
        return Row(window, prefix, min(length, self.most - len(prefix)))

    def _batches(self, rows: dict[int, Row]) -> list[list[int]]:
        """Rows that fit together: with the padding of the prefixes, none has too many tokens."""
        batches: list[list[int]] = []
        width, longest = 0, 0
        for i in sorted(rows, key=lambda i: len(rows[i].prefix), reverse=True):
            longest = max(longest, rows[i].length)
            if not batches or width + longest > self.most:
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
        new = found[:, prompt:].cpu()
        return [row[: int(row.eq(self.eos).int().argmax()) + 1] for row in new]

    def _sources(self, rows: list[Row]) -> dict[str, Tensor]:
        """The encoder's inputs for B windows."""
        separator = self.separators.source
        if separator is not None and not self.settings.as_sequences:
            start = self.source_start
            windows = [torch.cat([start, joined(row.window, separator)]) for row in rows]
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
