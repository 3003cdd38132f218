"""Segmentation for a pretrained model: RoBERTa's GPT-2 BPE, BERT's, or your own SentencePiece."""

import argparse
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import regex

from fairseq_memattn.data_prep.pipeline.arguments import add_options, file
from fairseq_memattn.data_prep.pipeline.binary_data import SPECIAL, check_dictionary, read_words
from fairseq_memattn.data_prep.pipeline.download import Archive, obtain
from fairseq_memattn.data_prep.pipeline.text_to_binary import Pipeline
from fairseq_memattn.data_prep.text.lines import LineFunction, rewrite
from fairseq_memattn.data_prep.text.subword import all_pieces, load
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.pieces import foreign_symbols, join_pieces, with_spaces

HOST = "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe"
PAGE = "https://github.com/facebookresearch/fairseq/tree/main/examples/roberta"
GPT2_FILES = ("encoder.json", "vocab.bpe", "dict.txt")
# Endings such as 'll, words, numbers and other signs with the space before them, and white space.
TOKEN = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
MOST_KNOWN = 500_000  # tokens whose numbers are kept
UNKNOWN = "[UNK]"  # BERT's name of fairseq's <unk>
BERT_VOCAB = file(
    "segment into BERT's pieces with its vocab.txt; requires --dictionary and the package "
    "tokenizers"
)
PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]


@dataclass(frozen=True)
class Subwords:
    """The segmentation of a pretrained model.

    files: the files that the segmentation depends on
    dictionary: the dictionary of the model, as fairseq writes it
    make: returns the function that segments a line; picklable
    restore: the function from pieces to text; None for GPT-2's BPE, which loses nothing, and for
        BERT's pieces, of which the text cannot be made
    options: what else the segmentation depends on
    """

    files: tuple[Path, ...]
    dictionary: Path
    make: Callable[[], LineFunction]
    restore: LineFunction | None = None
    options: Mapping[str, object] = field(default_factory=dict)


def add_subword_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    of_gpt2 = "folder with RoBERTa's encoder.json, vocab.bpe and dict.txt (default: they are "
    group.add_argument("--gpt2-bpe-dir", **file(of_gpt2 + "downloaded)", "FOLDER"))
    of_model = "SentencePiece model of a model other than RoBERTa; requires --dictionary"
    add_options(group, "--sentencepiece-model", sentencepiece_model={"help": of_model})
    of_dictionary = "dictionary of that model, as fairseq writes it (dict.txt)"
    add_options(parser, "--dictionary", dictionary={"help": of_dictionary})
    add_bert_arguments(parser, group)


def add_bert_arguments(
    parser: argparse._ActionsContainer, choices: argparse._ActionsContainer | None = None
) -> None:
    """choices: the group of options of which one is given"""
    (choices or parser).add_argument("--bert-vocab", **BERT_VOCAB)
    parser.add_argument(
        "--cased", action="store_true", help="keep upper case and accents; requires --bert-vocab"
    )


def check_bert_options(args: argparse.Namespace) -> bool:
    """Whether the pieces are BERT's. Raises MemAttnError for options that do not fit together."""
    if not args.bert_vocab:
        if args.cased:
            raise MemAttnError("--cased requires --bert-vocab")
        return False
    if args.sentencepiece_model or not args.dictionary:
        raise MemAttnError(
            "--bert-vocab requires --dictionary, the dictionary of the same model that memattn "
            "import-bert writes, and excludes --sentencepiece-model"
        )
    if not args.bert_vocab.is_file():
        raise MemAttnError(f"--bert-vocab {args.bert_vocab}: no such file")
    bert_tokenizer(args.bert_vocab, not args.cased)
    check_dictionary(args.dictionary)
    return True


def find_subwords(args: argparse.Namespace, downloads: Path) -> Subwords:
    """The segmentation that the options choose; by default RoBERTa's files are downloaded.

    Raises MemAttnError for options that do not fit together, for files that are missing or damaged,
    and for a dictionary that lacks pieces of GPT-2's BPE.
    """
    if check_bert_options(args):
        make = partial(bert_segmenter, args.bert_vocab, not args.cased)
        files, options = (args.bert_vocab,), {"cased": args.cased}
        return Subwords(files, args.dictionary, make, options=options)
    if args.sentencepiece_model is not None:
        if args.dictionary is None:
            raise MemAttnError(
                "--sentencepiece-model needs --dictionary, the dictionary of the same model"
            )
        return sentencepiece_subwords(args.sentencepiece_model, args.dictionary)
    if args.dictionary is not None:
        raise MemAttnError(
            "--dictionary requires --sentencepiece-model or --bert-vocab; GPT-2's BPE has its own "
            "dict.txt"
        )
    folder = args.gpt2_bpe_dir
    if folder is None:
        archives = (Archive(name, PAGE, f"{HOST}/{name}") for name in GPT2_FILES)
        return gpt2_subwords([obtain(one, None, downloads) for one in archives])
    paths = [folder / name for name in GPT2_FILES]
    for path in paths:
        if not path.is_file():
            raise MemAttnError(f"--gpt2-bpe-dir {folder}: has no file {path.name}")
    return gpt2_subwords(paths)


def gpt2_subwords(files: list[Path]) -> Subwords:
    """GPT-2's BPE, whose pieces are numbers. files: as in GPT2_FILES."""
    encoder, merges, dictionary = files
    try:
        numbers = json.loads(encoder.read_text(encoding="utf-8")).items()
    except (ValueError, AttributeError, RecursionError):
        raise MemAttnError(f"{encoder}: must be a JSON object from pieces to numbers") from None
    known = read_words(dictionary)
    for piece, number in numbers:
        if str(number) not in known:
            raise MemAttnError(
                f"{dictionary}: has no {number}, the number of the piece {piece!r} in {encoder}; "
                "the two files belong to different models"
            )
    return Subwords((encoder, merges), dictionary, partial(gpt2_segmenter, encoder, merges))


def gpt2_segmenter(encoder: Path, merges: Path) -> LineFunction:
    """GPT-2's BPE, from a line to the numbers of its pieces."""
    try:
        bpe = GPT2BPE(encoder, merges)
    except ValueError as error:
        raise MemAttnError(f"{merges}: not the merges of GPT-2's BPE ({error})") from None

    def segment_line(line: str) -> str:
        try:
            return " ".join(map(str, bpe.encode(line)))
        except KeyError as error:
            raise MemAttnError(
                f"{encoder}: has no piece {error}, which {merges} creates; the two files belong to "
                "different models"
            ) from None

    return segment_line


def check_vocabulary(models: Sequence[Path], dictionaries: Sequence[Path]) -> None:
    """Raise MemAttnError for a dictionary whose symbols are not pieces of its model.

    models, dictionaries: one for all languages, or one each
    """
    pieces = [all_pieces(model) for model in models]
    for number, dictionary in enumerate(dictionaries):
        check_dictionary(dictionary)
        own = slice(number, number + 1) if len(models) == len(dictionaries) else slice(None)
        words = read_words(dictionary) - {*SPECIAL}
        if what := foreign_symbols(sorted(words), {*chain.from_iterable(pieces[own])}):
            names = " ".join(map(str, models[own]))
            raise MemAttnError(
                f"--dictionary {dictionary} and --sentencepiece-model {names} do not belong "
                f"together: the symbols of the dictionary must be pieces of the model, but {what}"
            )


def sentencepiece_subwords(model: Path, dictionary: Path) -> Subwords:
    check_vocabulary([model], [dictionary])
    make = partial(sentencepiece_segmenter, model)
    return Subwords((model,), dictionary, make, join_pieces)


def sentencepiece_segmenter(model: Path) -> LineFunction:
    """The function from a line to its pieces. Raises MemAttnError as `subword.load` does."""
    processor = load(model, "--sentencepiece-model")
    return lambda line: " ".join(processor.encode(with_spaces(line), out_type=str))


def bert_tokenizer(vocabulary: Path, lower_case: bool) -> Any:
    """BERT's segmentation, with its vocab.txt. Raises MemAttnError for another file."""
    from tokenizers import BertWordPieceTokenizer

    try:
        return BertWordPieceTokenizer(
            str(vocabulary), lowercase=lower_case, strip_accents=lower_case
        )
    except Exception as error:  # the library has no narrower one for a file that is not UTF-8
        raise MemAttnError(
            f"--bert-vocab {vocabulary}: not a vocabulary of BERT ({error})"
        ) from None


def bert_pieces(encoded: Any) -> list[str]:
    """The pieces of what BERT's tokenizer gives, with fairseq's name of the unknown one."""
    return without_spaces(["<unk>" if piece == UNKNOWN else piece for piece in encoded.tokens])


def without_spaces(pieces: list[str]) -> list[str]:
    """The same pieces. Raises MemAttnError for one that fairseq would split."""
    for piece in pieces:
        if piece.split() != [piece]:
            raise MemAttnError(
                f"the piece {piece!r} contains white space, at which fairseq would split it"
            )
    return pieces


def bert_segmenter(vocabulary: Path, lower_case: bool) -> LineFunction:
    """BERT's segmentation, from a line to its pieces."""
    encode = partial(bert_tokenizer(vocabulary, lower_case).encode, add_special_tokens=False)
    return lambda line: " ".join(bert_pieces(encode(line)))


def segment(pipeline: Pipeline, split: str, suffix: str, subwords: Subwords) -> None:
    source, target = (pipeline.path(kind, split, suffix) for kind in ("text", "pieces"))

    def work() -> Counter[str]:
        known = read_words(subwords.dictionary)
        return rewrite(source, target, subwords.make, pipeline.workers, subwords.restore, known)

    inputs = [source, *subwords.files, subwords.dictionary]
    name = f"pieces-{split}-{suffix}"
    pipeline.stages.run(name, inputs, [target], work, **subwords.options)


def letters() -> dict[int, str]:
    """A visible letter for each byte: the byte's own, or one from U+0100 on."""
    others = [byte for byte in range(256) if byte not in PRINTABLE]
    own = {byte: chr(byte) for byte in PRINTABLE}
    return own | {byte: chr(256 + number) for number, byte in enumerate(others)}


class GPT2BPE:
    """Encodes text with the numbers of a vocabulary (encoder.json) and merges (vocab.bpe).

    Raises ValueError for files that are not JSON or UTF-8.
    """

    def __init__(self, vocabulary: Path, merges: Path) -> None:
        self.numbers: dict[str, int] = json.loads(vocabulary.read_text(encoding="utf-8"))
        lines = merges.read_text(encoding="utf-8").split("\n")[1:-1]
        self.ranks = {tuple(line.split()): rank for rank, line in enumerate(lines)}
        self.letters = letters()
        self.known = lru_cache(MOST_KNOWN)(self.encode_token)

    def encode(self, text: str) -> list[int]:
        """The numbers of the pieces. Raises KeyError for a piece that has none."""
        return [number for token in TOKEN.findall(text) for number in self.known(token)]

    def encode_token(self, token: str) -> list[int]:
        return [self.numbers[piece] for piece in self.pieces(token)]

    def pieces(self, token: str) -> list[str]:
        """A token's letters, merged in the order of the merges."""
        parts = [self.letters[byte] for byte in token.encode("utf-8")]
        while len(parts) > 1:
            best = min(pairwise(parts), key=lambda pair: self.ranks.get(pair, math.inf))
            if best not in self.ranks:
                break
            parts = merged(parts, best)
        return parts


def merged(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """The parts with every occurrence of the pair as one part, from left to right."""
    found: list[str] = []
    rest = iter(range(len(parts)))
    for i in rest:
        if tuple(parts[i : i + 2]) == pair:
            found.append("".join(pair))
            next(rest)
        else:
            found.append(parts[i])
    return found
