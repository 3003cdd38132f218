"""The documents of a binarised split, and their pieces."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairseq_memattn.documents.ids import Documents, read_ids
from fairseq_memattn.errors import MemAttnError


class Piece(NamedTuple):
    """The text of one record.

    lines: of its document in the split; first: the index of its first token in them, from 0
    length: L, its number of tokens, including bos
    """

    id: str
    lines: range
    first: int
    length: int


class Corpus:
    """Documents of lines, each line ending with eos.

    lines: fairseq's data set of single lines; documents: the id and the lines of each
    bos: the symbol that the model reads before each text, or None
    """

    def __init__(self, lines: Any, documents: Sequence[tuple[str, range]], bos: int | None) -> None:
        self.lines, self.documents = lines, documents
        self.bos = [] if bos is None else [bos]

    def pieces(self, limit: int, split: bool) -> list[Piece]:
        """The documents; with `split`, those of more than `limit` tokens are cut into pieces.

        The pieces of a document d have the ids d#0, d#1 and so on. Raises MemAttnError for an id
        that occurs twice and, without `split`, for a document that is too long.
        """
        pieces: list[Piece] = []
        for id, lines in self.documents:
            tokens = int(np.sum(self.lines.sizes[lines.start : lines.stop]))
            room = limit - len(self.bos)
            if tokens <= room:
                pieces.append(Piece(id, lines, 0, tokens + len(self.bos)))
                continue
            if not split:
                raise MemAttnError(
                    f"document {id!r} has {tokens + len(self.bos)} tokens, but --max-length is "
                    f"{limit}; --split cuts such documents into pieces"
                )
            for number, first in enumerate(range(0, tokens, room)):
                length = min(room, tokens - first) + len(self.bos)
                pieces.append(Piece(f"{id}#{number}", lines, first, length))
        seen: set[str] = set()
        for piece in pieces:
            if piece.id in seen:
                raise MemAttnError(f"two documents or pieces of them have the id {piece.id!r}")
            seen.add(piece.id)
        return pieces

    def tokens(self, piece: Piece) -> Tensor:
        """The tokens of a piece, (L,)."""
        ends = np.cumsum(self.lines.sizes[piece.lines.start : piece.lines.stop])
        end = piece.first + piece.length - len(self.bos)
        first, last = np.searchsorted(ends, [piece.first, end - 1], side="right")
        text = torch.cat([self.lines[line] for line in piece.lines[first : last + 1]]).long()
        start = piece.first - int(ends[first - 1] if first else 0)
        text = text[start : start + end - piece.first]
        return torch.cat([torch.tensor(self.bos, dtype=torch.long), text])


def documents_of(how: str, name: str, sizes: Any, docids: Path) -> list[tuple[str, range]]:
    """The id and the lines of each document.

    how: `lines`, `blank-lines` or `ids`. Blank lines between documents belong to none, as in
        fairseq's `complete_doc`. Documents without ids get the id NAME-LINE, where LINE is the
        number of their first line, from 0
    sizes: (lines,) the number of tokens of each line, including eos
    docids: the file with the document id of each line
    """
    if how == "lines":
        return [(f"{name}-{line}", range(line, line + 1)) for line in range(len(sizes))]
    if how == "ids":
        names = read_ids(docids, len(sizes))
        documents = Documents.from_ids(names, str(docids))
        return [
            (names[start], documents.sentences_of(n)) for n, start in enumerate(documents.starts)
        ]
    found, first = [], 0
    for blank in [*np.flatnonzero(np.asarray(sizes) == 1).tolist(), len(sizes)]:
        if blank > first:
            found.append((f"{name}-{first}", range(first, blank)))
        first = blank + 1
    return found


def share(pieces: Sequence[Piece], shards: int, number: int) -> Sequence[Piece]:
    """Process `number`'s part of the pieces: consecutive, with about an equal share of tokens."""
    documents = Documents(
        np.cumsum([0, *(piece.length for piece in pieces)])[:-1],
        sum(piece.length for piece in pieces),
    )
    mine = documents.shard(shards, number)
    return pieces[mine.start : mine.stop]


def batches(lengths: Sequence[int], max_tokens: int) -> list[range]:
    """Ranges of consecutive sequences, each of at most `max_tokens` with padding, or of one."""
    found, first, longest = [], 0, 0
    for number, length in enumerate(lengths):
        longest = max(longest, length)
        if number > first and longest * (number + 1 - first) > max_tokens:
            found.append(range(first, number))
            first, longest = number, length
    return [*found, range(first, len(lengths))] if lengths else found


def source_of(tokens: Tensor) -> bytes:
    """The SHA-256 hash that identifies the text of a document."""
    return hashlib.sha256(tokens.numpy().astype("<i8").tobytes()).digest()
