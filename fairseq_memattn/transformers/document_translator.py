"""Documents in, their translations out, with a folder that `memattn export` has written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import AutoConfig, AutoTokenizer

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.transformers import trained_weights
from fairseq_memattn.transformers.document_search import DocumentSearch, Separators
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
        search = DocumentSearch(
            self.model,
            self.settings,
            SearchOptions(**options),
            self.separators,
            left_pad_source=self.tokenizer.padding_side == "left",
        )
        sentences = [
            self._encoded(number, index, text)
            for number, document in enumerate(documents)
            for index, text in enumerate(document)
        ]
        hidden = None if progress else True
        with tqdm(total=len(sentences), unit=" sentences", leave=False, disable=hidden) as bar:
            found = search.translate(sentences, [len(one) for one in documents], bar.update)
        texts = iter(
            [self.tokenizer.decode(one.tolist(), skip_special_tokens=True) for one in found]
        )
        return [[next(texts) for _ in document] for document in documents]

    def _encoded(self, document: int, sentence: int, text: str) -> Tensor:
        """The tokens of a sentence, which end with eos."""
        tokens = self.tokenizer(text, verbose=False)["input_ids"]
        limit = self.settings.max_source
        if len(tokens) > limit:
            reason = f"the model reads at most {limit} tokens, but the sentence has {len(tokens)}"
            raise SentenceError(document, sentence, reason)
        if self.separators.source is not None and self.separators.source in tokens:
            reason = f"the sentence contains the separator {self.settings.separator!r} of sentences"
            raise SentenceError(document, sentence, reason)
        return torch.tensor(tokens)
