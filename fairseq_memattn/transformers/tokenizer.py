"""The tokenizer of a model that fairseq has trained: the ids are those of its training data."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizer

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.transformers.pieces import (
    SENTENCEPIECE,
    Lowercased,
    MosesTokens,
    Segmentation,
    segmentation,
)
from fairseq_memattn.transformers.vocabulary import SPECIAL, Vocabulary

FILES = {
    "src_vocab_file": "dict.source.txt",
    "tgt_vocab_file": "dict.target.txt",
    "src_pieces_file": "pieces.source.model",
    "tgt_pieces_file": "pieces.target.model",
    "src_truecase_file": "truecase.source.txt",
    "tgt_truecase_file": "truecase.target.txt",
    "encoder_file": "encoder.json",
}
# What `PreTrainedTokenizer` is given, if nothing else is.
DEFAULTS: dict[str, Any] = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "clean_up_tokenization_spaces": False,
}


class MemAttnTokenizer(PreTrainedTokenizer):
    """Text to the ids of fairseq's dictionary, and back.

    Source and target can differ in dictionary and segmentation. A text is encoded as source, and
    as target with `text_target=`; ids are decoded as target. The target's files are needed only
    where they differ. Decoded text is that of fairseq-generate: `skip_special_tokens` leaves out
    all special tokens but `<unk>`.

    A text has special tokens only if its segmentation gives them, as in training; `<mask>`,
    sentinels and the separator of sentences, which are added tokens, are found in it.

    src_vocab_file, tgt_vocab_file: dictionaries of fairseq
    src_pieces_file, tgt_pieces_file: SentencePiece models, codes of subword-nmt or GPT-2's merges
    src_truecase_file, tgt_truecase_file: models of Moses' truecaser
    encoder_file: GPT-2's encoder.json
    pieces: sentencepiece, subword-nmt, gpt2 or words
    src_lang, tgt_lang: languages, for Moses' rules
    moses: whether the text was tokenised with Moses' rules, and printable_only: without characters
        of Unicode's categories C
    lowercase: whether the text was converted to lower case
    padding_side, tgt_padding_side: of the source and of the target
    special_tokens_pattern: "eos" after a sequence (translation), "bos" before it (language models,
        whose bos_token is fairseq's first input), "bos_eos", "cls_double_sep" (masked language
        models) or "none"
    """

    vocab_files_names = FILES
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(
        self,
        src_vocab_file: str,
        tgt_vocab_file: str | None = None,
        *,
        pieces: str = SENTENCEPIECE,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        moses: bool = False,
        printable_only: bool = False,
        lowercase: bool = False,
        tgt_padding_side: str = "right",
        special_tokens_pattern: str = "eos",
        **kwargs: Any,
    ) -> None:
        if src_vocab_file is None:
            raise MemAttnError(f"the folder of the tokenizer has no {FILES['src_vocab_file']}")
        given = {"src_vocab_file": src_vocab_file, "tgt_vocab_file": tgt_vocab_file}
        named = {name: kwargs.pop(name, None) for name in FILES} | given
        self.files = {name: Path(path) for name, path in named.items() if path}
        self.source = self.target = Vocabulary.load(Path(src_vocab_file))
        if tgt_vocab_file:
            self.target = Vocabulary.load(Path(tgt_vocab_file))
        options: dict[str, Any] = {
            "pieces": pieces,
            "src_lang": src_lang,
            "tgt_lang": tgt_lang,
            "moses": moses,
            "printable_only": printable_only,
            "lowercase": lowercase,
        }
        self.segmentations = {side: self._segmentation(side, options) for side in ("src", "tgt")}
        self.tgt_padding_side = tgt_padding_side
        self._encodes_target = False
        self._symbols = re.compile("(?!)")
        super().__init__(
            **named,
            **options,
            tgt_padding_side=tgt_padding_side,
            special_tokens_pattern=special_tokens_pattern,
            **DEFAULTS | kwargs,
        )
        # transformers saves what is listed here, from which it leaves this option out.
        self.init_kwargs["special_tokens_pattern"] = special_tokens_pattern

    def _segmentation(self, side: str, options: dict[str, Any]) -> Segmentation:
        def of_side(name: str) -> Path | None:
            return self.files.get(f"{side}_{name}_file", self.files.get(f"src_{name}_file"))

        made = segmentation(options["pieces"], of_side("pieces"), self.files.get("encoder_file"))
        if options["moses"]:
            language = options[f"{side}_lang"] or "en"
            made = MosesTokens(made, language, of_side("truecase"), options["printable_only"])
        return Lowercased(made) if options["lowercase"] else made

    # Sides.

    @property
    def vocab_size(self) -> int:
        return len(self.source)

    def get_vocab(self) -> dict[str, int]:
        """The ids of the source's symbols."""
        return {**self.source.ids, **self._added_tokens_encoder}

    def get_tgt_vocab(self) -> dict[str, int]:
        """The ids of the target's symbols."""
        return dict(self.target.ids)

    def _switch_to_target_mode(self) -> None:
        if not self._encodes_target:
            self._encodes_target = True
            self.padding_side, self._padding_side = self.tgt_padding_side, self.padding_side

    def _switch_to_input_mode(self) -> None:
        if self._encodes_target:
            self._encodes_target = False
            self.padding_side = self._padding_side

    # Encoding.

    def _update_trie(self, unique_no_split_tokens: list[str] | None = None) -> None:
        """Collects the added tokens, which are found in text.

        transformers calls it when tokens are added.
        """
        patterns = {
            token.content: rf"(?<!\S){re.escape(token.content)}(?!\S)"
            if token.single_word
            else re.escape(token.content)
            for token in self._added_tokens_decoder.values()
            if token.content not in SPECIAL
        }
        parts = [patterns[content] for content in sorted(patterns, key=len, reverse=True)]
        self._symbols = re.compile("|".join(parts) or "(?!)")

    def tokenize(self, text: str, *args: Any, **kwargs: Any) -> list[str]:
        """The pieces of a text, and the added tokens between them."""
        pieces: list[str] = []
        end = 0
        for found in self._symbols.finditer(text):
            # As in fairseq's RoBERTa, a space before a mask belongs to the mask.
            pieces += [*self._tokenize(text[end : found.start()].rstrip()), found[0]]
            end = found.end()
        return [*pieces, *self._tokenize(text[end:])]

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return self.segmentations["tgt" if self._encodes_target else "src"].split(text)

    def _convert_token_to_id_with_added_voc(self, token: str) -> int:
        vocabulary = self.target if self._encodes_target else self.source
        known = self._added_tokens_encoder.get(token, vocabulary.id(token))
        return vocabulary.ids.get(token, known)

    # Decoding.

    def convert_ids_to_tokens(  # type: ignore[override]
        self, ids: int | Iterable[int], skip_special_tokens: bool = False
    ) -> str | list[str]:
        """The symbols of the target. `skip_special_tokens` keeps `<unk>`."""
        if isinstance(ids, int):
            return self._convert_id_to_token(ids)
        left_out = set(self.all_special_ids) if skip_special_tokens else set()
        left_out.discard(self.unk_token_id)
        numbers = [int(number) for number in ids]
        return [self._convert_id_to_token(number) for number in numbers if number not in left_out]

    def _convert_id_to_token(self, index: int) -> str:
        if index >= len(self.target) and index in self._added_tokens_decoder:
            return self._added_tokens_decoder[index].content
        return self.target.symbol(index)

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """The text of pieces; added and special tokens stand between spaces."""
        apart = {token.content for token in self._added_tokens_decoder.values()}
        apart.discard(str(self.unk_token))
        texts: list[str] = []
        pieces: list[str] = []
        for token in tokens:
            if token in apart:
                texts += [self._joined(pieces), token]
                pieces = []
            else:
                pieces.append(token)
        texts.append(self._joined(pieces))
        return _with_spaces([text for text in texts if text])

    def _joined(self, pieces: list[str]) -> str:
        return self.segmentations["tgt"].join(pieces) if pieces else ""

    # Files.

    def save_vocabulary(
        self, save_directory: str, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Copies the dictionaries and the files of the segmentation."""
        prefix = f"{filename_prefix}-" if filename_prefix else ""
        saved = []
        for name, path in self.files.items():
            target = Path(save_directory, prefix + FILES[name])
            if not (target.exists() and target.samefile(path)):
                shutil.copyfile(path, target)
            saved.append(str(target))
        return tuple(saved)


def _with_spaces(texts: list[str]) -> str:
    """The texts with one space at least between two."""
    joined = "".join(texts[:1])
    for text in texts[1:]:
        joined += text if joined[-1:].isspace() or text[:1].isspace() else f" {text}"
    return joined
