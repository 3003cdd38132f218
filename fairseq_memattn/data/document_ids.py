"""Document ids beside a corpus: which of its sentences form a document."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fairseq_memattn.data.indices import Indices
from fairseq_memattn.errors import MemAttnError


class Documents:
    """The documents of a corpus whose sentences are numbered from 0.

    starts: (N,) each document's first sentence, ascending from 0
    sentences: how many there are in all
    """

    def __init__(self, starts: Sequence[int] | Indices, sentences: int) -> None:
        self.starts = np.asarray(starts, dtype=np.int64)
        self.sentences = sentences

    @classmethod
    def from_ids(cls, ids: Sequence[str], where: str) -> "Documents":
        """ids: one for every sentence, equal within a document.

        Raises MemAttnError where an id comes back after its document has ended.
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

    def first_sentences(self) -> Indices:
        """(S,) for every sentence, the first one of its document."""
        lengths = np.diff(self.starts, append=self.sentences)
        return np.repeat(self.starts, lengths)

    def shard(self, shards: int, number: int) -> range:
        """The documents of one of several processes, each with about as many sentences."""
        bounds = [self.sentences * i // shards for i in range(shards + 1)]
        first, end = np.searchsorted(self.starts, bounds[number : number + 2])
        return range(int(first), int(end))


def read_docids(path: Path, sentences: int) -> Documents:
    """The documents of a binarised split, from the ids beside it, one a line.

    Raises MemAttnError where the file is missing, has another number of lines than the split has
    sentences, or holds an id that comes back.
    """
    if not path.exists():
        raise MemAttnError(
            f"{path} is missing: the document ids of this split, one a line for each of its "
            f"{sentences} sentences; `memattn prepare binarise` writes it"
        )
    ids = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    if len(ids) != sentences:
        raise MemAttnError(f"{path} has {len(ids)} lines, but its split has {sentences} sentences")
    if not all(map(str.strip, ids)):
        number = [not text.strip() for text in ids].index(True)
        raise MemAttnError(f"{path}, line {number + 1}: the document id is empty")
    return Documents.from_ids(ids, str(path))
