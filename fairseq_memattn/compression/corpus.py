"""The documents of a binarised split, and their pieces."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairseq_memattn.data.document_ids import Documents, read_docids
from fairseq_memattn.errors import MemAttnError


class Piece(NamedTuple):
    """The text of one record.

    lines: of the split; first: the index of its first token in these lines, from 0
    length: L, the number of its tokens, with the symbol of the beginning
    """

    id: str
    lines: range
    first: int
    length: int


class Corpus:
    """Documents of lines, each line ending with eos.

    lines: fairseq's data set of single lines; documents: the id of each and its lines
    bos: the symbol that the model has before each text, or None
    """

    def __init__(self, lines: Any, documents: Sequence[tuple[str, range]], bos: int | None) -> None:
        self.lines, self.documents = lines, documents
        self.bos = [] if bos is None else [bos]

    def pieces(self, limit: int, split: bool) -> list[Piece]:
        """Documents, those of more than `limit` tokens cut where `split` allows it.

        Pieces of a document d are d#0, d#1 and so on. Raises MemAttnError for a document that is
        too long, and for an id that occurs twice.
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
        """(L,)"""
        text = torch.cat([self.lines[line] for line in piece.lines]).long()
        end = piece.first + piece.length - len(self.bos)
        return torch.cat([torch.tensor(self.bos, dtype=torch.long), text[piece.first : end]])


def documents_of(how: str, name: str, sizes: Any, docids: Path) -> list[tuple[str, range]]:
    """The id and the lines of each document.

    how: `lines`, `blank-lines` or `ids`. Blank lines that part documents belong to none, as in
        fairseq's `complete_doc`. Documents without ids are called NAME-LINE after their first
        line, from 0
    sizes: (lines,) tokens of each line, its eos included; docids: ids beside the data, one a line
    """
    if how == "lines":
        return [(f"{name}-{line}", range(line, line + 1)) for line in range(len(sizes))]
    if how == "ids":
        documents = read_docids(docids, len(sizes))
        names = docids.read_text(encoding="utf-8").split("\n")
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
    """The pieces of one of several processes: consecutive ones, with about as many tokens."""
    documents = Documents(
        np.cumsum([0, *(piece.length for piece in pieces)])[:-1],
        sum(piece.length for piece in pieces),
    )
    mine = documents.shard(shards, number)
    return pieces[mine.start : mine.stop]


def batches(lengths: Sequence[int], max_tokens: int) -> list[range]:
    """Consecutive sequences that take, padded, at most `max_tokens`, or one that is longer."""
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
