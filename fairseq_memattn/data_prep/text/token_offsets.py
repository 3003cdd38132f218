"""Segmentation into pieces with the characters of the text that each piece covers."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_memattn.data_prep.text.subword import load
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.white_space import with_spaces

UNKNOWN = "[UNK]"  # BERT's name of fairseq's <unk>


class Pieces(NamedTuple):
    """The pieces of a text, and the half-open range of characters that each piece covers.

    A range excludes white space around the piece. It is empty for a piece that covers no
    character, which normalisation may create.
    """

    pieces: list[str]
    places: list[tuple[int, int]]


Cut = Callable[[str], Pieces]


def sentencepiece_cut(model: Path) -> Cut:
    """Segmentation with a SentencePiece model."""
    processor = load(model, "--sentencepiece-model")

    def cut(text: str) -> Pieces:
        found = processor.encode(with_spaces(text), return_type="offset_mapping")
        return _pieces(text, found["pieces"], found["offsets"])

    return cut


def bert_cut(vocabulary: Path, lower_case: bool) -> Cut:
    """BERT's segmentation, with its vocab.txt. Raises MemAttnError for another file."""
    from tokenizers import BertWordPieceTokenizer

    try:
        tokenizer = BertWordPieceTokenizer(
            str(vocabulary), lowercase=lower_case, strip_accents=lower_case
        )
    except Exception as error:  # the library has no narrower one for a file that is not UTF-8
        raise MemAttnError(
            f"--bert-vocab {vocabulary}: not a vocabulary of BERT ({error})"
        ) from None

    def cut(text: str) -> Pieces:
        found = tokenizer.encode(text, add_special_tokens=False)
        pieces = ["<unk>" if piece == UNKNOWN else piece for piece in found.tokens]
        return _pieces(text, pieces, found.offsets)

    return cut


def _pieces(text: str, pieces: list[str], offsets: Any) -> Pieces:
    places = []
    for begin, end in offsets:
        begin = end - len(text[begin:end].lstrip())
        places.append((begin, begin + len(text[begin:end].rstrip())))
    for piece in pieces:
        if piece.split() != [piece]:
            raise MemAttnError(
                f"the piece {piece!r} contains white space, at which fairseq would split it"
            )
    return Pieces(pieces, places)


def cover(places: list[tuple[int, int]], extent: tuple[int, int]) -> tuple[int, int] | None:
    """The first and the last piece that overlap a range of characters; None for no piece.

    places: the ranges of the pieces, in the order of the text
    """
    begin, end = extent
    first = bisect_right(places, begin, key=lambda place: place[1])
    behind = bisect_left(places, end, key=lambda place: place[0])
    inside = [
        number
        for number in range(first, behind)
        if max(begin, places[number][0]) < min(end, places[number][1])
    ]
    return (inside[0], inside[-1]) if inside else None
