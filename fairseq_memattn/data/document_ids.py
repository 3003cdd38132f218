"""The documents of a corpus, from the document ids of its sentences."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fairseq_memattn.data.indices import Indices
from fairseq_memattn.errors import MemAttnError


class Documents:
    """The documents of a corpus whose sentences are numbered from 0.

    starts: (N,), the first sentence of each document, ascending from 0
    sentences: the number of all sentences
    """

    def __init__(self, starts: Sequence[int] | Indices, sentences: int) -> None:
        self.starts = np.asarray(starts, dtype=np.int64)
        self.sentences = sentences

    @classmethod
    def from_ids(cls, ids: Sequence[str], where: str) -> "Documents":
        """ids: the document id of each sentence; where: the file, for error messages

        Raises MemAttnError for an id that occurs again after its document has ended.
        """
        starts = [i for i in range(len(ids)) if i == 0 or ids[i] != ids[i - 1]]
        first: dict[str, int] = {}
        for start in starts:
            if ids[start] in first:
                raise MemAttnError(
                    f"{where}, line {start + 1}: document {ids[start]!r} began at line "
                    f"{first[ids[start]] + 1} and had already ended; a document must be contiguous"
                )
            first[ids[start]] = start
        return cls(starts, len(ids))

    def __len__(self) -> int:
        return len(self.starts)

    def of(self, sentence: int) -> int:
        """The number of the document that a sentence belongs to."""
        return int(np.searchsorted(self.starts, sentence, side="right")) - 1

    def sentences_of(self, document: int) -> range:
        """The sentences of a document."""
        last = document + 1 == len(self)
        end = self.sentences if last else int(self.starts[document + 1])
        return range(int(self.starts[document]), end)

    def all_sentences_of(self, documents: range) -> Indices:
        """The sentences of several documents."""
        sentences = [i for number in documents for i in self.sentences_of(number)]
        return np.array(sentences, dtype=np.int64)

    def first_sentences(self) -> Indices:
        """(S,), the first sentence of the document of each sentence."""
        lengths = np.diff(self.starts, append=self.sentences)
        return np.repeat(self.starts, lengths)

    def shard(self, shards: int, number: int) -> range:
        """The documents of shard `number`. All shards have about the same number of sentences.

        A shard is empty only if there are fewer documents than shards.
        """
        places = np.arange(shards + 1)
        bounds = np.searchsorted(self.starts, self.sentences * places // shards)
        if shards <= len(self):
            bounds = np.maximum.accumulate(bounds - places) + places
            bounds = np.minimum(bounds, len(self) - shards + places)
        return range(int(bounds[number]), int(bounds[number + 1]))


def read_docids(path: Path, sentences: int) -> Documents:
    """The documents of a binarised split, from its file of document ids, one a line.

    Raises MemAttnError for a missing file, a number of lines that differs from the number of
    sentences, an empty id, and an id that occurs again after its document has ended.
    """
    if not path.exists():
        raise MemAttnError(
            f"{path} is missing; it must have the document id of each of the split's {sentences} "
            "sentences, one a line; `memattn prepare own-corpus` and `memattn prepare binarise` "
            "write it from .docid files: run the one that wrote the folder again"
        )
    ids = _read(path).removesuffix("\n").split("\n")
    if len(ids) != sentences:
        raise MemAttnError(f"{path} has {len(ids)} lines, but its split has {sentences} sentences")
    if not all(map(str.strip, ids)):
        number = [not text.strip() for text in ids].index(True)
        raise MemAttnError(f"{path}, line {number + 1}: the document id is empty")
    return Documents.from_ids(ids, str(path))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MemAttnError(f"{path}: not UTF-8 at byte {error.start + 1}") from None
