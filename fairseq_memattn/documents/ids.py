"""The documents of a corpus, from the document ids of its sentences."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import read_lines, starts_of_documents

Indices = NDArray[np.int64]


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
        return cls(starts_of_documents(ids, where), len(ids))

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

    def last_sentences_of(self, documents: range) -> Indices:
        """The last sentence of each of several documents."""
        return np.append(self.starts[1:], self.sentences)[documents] - 1

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

    Raises MemAttnError as `read_ids`, and for an id that occurs again after its document has ended.
    """
    return Documents.from_ids(read_ids(path, sentences), str(path))


def read_ids(path: Path, sentences: int) -> list[str]:
    """The document id of each sentence of a binarised split, without spaces around it.

    Raises MemAttnError for a missing file, a file that is not UTF-8 or begins with a byte-order
    mark, a number of lines that differs from the number of sentences, and an empty id.
    """
    if not path.exists():
        raise MemAttnError(
            f"{path} is missing; it must have the document id of each of the split's {sentences} "
            "sentences, one a line; `memattn prepare own-corpus` and `memattn prepare binarise` "
            "write it from .docid files: run the one that wrote the folder again"
        )
    try:
        ids = [line.strip() for line in read_lines(path)]
    except ValueError as error:
        raise MemAttnError(str(error)) from None
    if len(ids) != sentences:
        raise MemAttnError(f"{path} has {len(ids)} lines, but its split has {sentences} sentences")
    if "" in ids:
        raise MemAttnError(f"{path}, line {ids.index('') + 1}: the document id is empty")
    return ids
