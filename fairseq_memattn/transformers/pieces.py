"""From text to the pieces of a model's training data, and back, one class for each segmentation.

The packages that segment are imported when they are needed.
"""

import json
from pathlib import Path
from typing import Any, Protocol

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.pieces import join_pieces, with_spaces

SENTENCEPIECE, SUBWORD_NMT, GPT2, WORDS = "sentencepiece", "subword-nmt", "gpt2", "words"


class Segmentation(Protocol):
    """split: from text to pieces; join: back"""

    def split(self, text: str) -> list[str]: ...

    def join(self, pieces: list[str]) -> str: ...


class SentencePieces:
    """A SentencePiece model."""

    def __init__(self, model: Path) -> None:
        import sentencepiece

        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
        except RuntimeError:
            raise MemAttnError(f"{model}: not a SentencePiece model") from None

    def split(self, text: str) -> list[str]:
        # fairseq splits the lines of segmented text at every white space.
        return " ".join(self.processor.encode(with_spaces(text), out_type=str)).split()

    def join(self, pieces: list[str]) -> str:
        return join_pieces(" ".join(pieces))

    def __contains__(self, piece: str) -> bool:
        return bool(self.processor.id_to_piece(self.processor.piece_to_id(piece)) == piece)


class SubwordNMT:
    """The BPE codes of subword-nmt."""

    def __init__(self, codes: Path) -> None:
        try:
            from subword_nmt.apply_bpe import BPE
        except ImportError:
            raise MemAttnError(
                "the BPE codes of subword-nmt need the package subword-nmt, which is not installed"
            ) from None
        check_codes(codes)
        with open(codes, encoding="utf-8", newline="\n") as file:
            self.bpe = BPE(file)

    def split(self, text: str) -> list[str]:
        return str(self.bpe.segment(" ".join(text.split()))).split()

    def join(self, pieces: list[str]) -> str:
        return f"{' '.join(pieces)} ".replace("@@ ", "").rstrip()


def check_codes(path: Path) -> None:
    """Raises MemAttnError for a file that is not codes of subword-nmt, which exits at such a one.

    GPT-2's merges have the same form.
    """
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except UnicodeDecodeError:
        lines = [""]
    for number, line in enumerate(lines, start=1):
        header = number == 1 and line.startswith("#version: ")
        if not header and len(line.split(" ")) != 2:
            raise MemAttnError(f"{path}, line {number}: not a merge, as codes of BPE have them")


class GPT2Pieces:
    """GPT-2's BPE, as RoBERTa uses it: its pieces are numbers.

    encoder, merges: the files encoder.json and vocab.bpe
    """

    def __init__(self, encoder: Any, merges: Path) -> None:
        from tokenizers import Tokenizer
        from tokenizers.decoders import ByteLevel as Bytes
        from tokenizers.models import BPE
        from tokenizers.pre_tokenizers import ByteLevel

        pieces = json.loads(encoder.read_text(encoding="utf-8"))
        lines = merges.read_text(encoding="utf-8").split("\n")[1:-1]
        pairs = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
        try:
            model = BPE(vocab=pieces, merges=pairs)
        except Exception as error:  # of a package in Rust, which has no better class
            raise MemAttnError(f"{merges} does not fit {encoder}: {error}") from None
        self.tokenizer = Tokenizer(model)
        self.tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
        self.bytes = Bytes()
        self.names = {str(number): piece for piece, number in pieces.items()}

    def split(self, text: str) -> list[str]:
        return [str(number) for number in self.tokenizer.encode(text).ids]

    def join(self, pieces: list[str]) -> str:
        return str(self.bytes.decode([self.names.get(piece, piece) for piece in pieces]))


class Words:
    """Text whose words are the symbols of the dictionary."""

    def split(self, text: str) -> list[str]:
        return text.split()

    def join(self, pieces: list[str]) -> str:
        return " ".join(pieces)


class MosesTokens:
    """The pieces of text that was tokenised with Moses' rules, as sacremoses implements them.

    pieces: segments the tokens
    truecase: a model of Moses' truecaser, which was applied to the tokens
    printable_only: characters of Unicode's categories C are replaced by spaces before
    """

    def __init__(
        self,
        pieces: Segmentation,
        language: str,
        truecase: Path | None = None,
        printable_only: bool = False,
    ) -> None:
        try:
            import sacremoses
        except ImportError:
            raise MemAttnError(
                "text in Moses' tokens needs the package sacremoses, which is not installed"
            ) from None
        self.pieces = pieces
        self.printable_only = printable_only
        self.normaliser = sacremoses.MosesPunctNormalizer(lang=language)
        self.tokeniser = sacremoses.MosesTokenizer(lang=language)
        self.detokeniser = sacremoses.MosesDetokenizer(lang=language)
        self.truecaser = self.detruecaser = None
        if truecase:
            self.truecaser = sacremoses.MosesTruecaser(str(truecase))
            self.detruecaser = sacremoses.MosesDetruecaser()

    def split(self, text: str) -> list[str]:
        import regex  # a requirement of sacremoses

        text = self.normaliser.normalize(text)
        if self.printable_only:
            text = regex.sub(r"\p{C}", " ", text)
        text = self.tokeniser.tokenize(text, aggressive_dash_splits=True, return_str=True)
        if self.truecaser:
            text = self.truecaser.truecase(text, return_str=True, use_known=True)
        return self.pieces.split(text)

    def join(self, pieces: list[str]) -> str:
        text = self.pieces.join(pieces)
        if self.detruecaser:
            text = self.detruecaser.detruecase(text, return_str=True)
        return str(self.detokeniser.detokenize(text.split()))


class Lowercased:
    """The pieces of text in lower case."""

    def __init__(self, pieces: Segmentation) -> None:
        self.pieces = pieces

    def split(self, text: str) -> list[str]:
        return self.pieces.split(text.lower())

    def join(self, pieces: list[str]) -> str:
        return self.pieces.join(pieces)


def segmentation(kind: str, file: Path | None, encoder: Path | None) -> Segmentation:
    """The segmentation of a kind: sentencepiece, subword-nmt, gpt2 or words.

    file: the SentencePiece model, the codes of subword-nmt or the merges of GPT-2
    encoder: GPT-2's encoder.json
    Raises MemAttnError for files that are missing or of another kind, and for packages that are not
    installed.
    """
    if kind == WORDS:
        return Words()
    makers: dict[str, Any] = {
        SENTENCEPIECE: SentencePieces,
        SUBWORD_NMT: SubwordNMT,
        GPT2: lambda merges: GPT2Pieces(encoder, merges),
    }
    if kind not in makers:
        kinds = ", ".join((*makers, WORDS))
        raise MemAttnError(f"`pieces` of a tokenizer must be one of {kinds}, but is {kind!r}")
    if file is None or (kind == GPT2 and encoder is None):
        raise MemAttnError(f"the tokenizer lacks the file of its segmentation, {kind}")
    return makers[kind](file)
