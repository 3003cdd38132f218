"""The documents of a test set, from a file with one document id a line."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from fairseq_memattn.evaluation.text_columns import read_column
from fairseq_memattn.files import starts_of_documents


class Document(NamedTuple):
    """The sentences of a test set from `start` up to but not including `stop`, counted from 0."""

    name: str
    start: int
    stop: int


def read_documents(
    path: Path, text: Path, sentences: int, option: str = "--reference"
) -> list[Document]:
    """The documents of a file with one id a line, in their order.

    path: as in `read_column`, whose default is the column docid
    text, option: the file of the sentences, for error messages; sentences: its number of lines

    Raises ValueError, which names file and line, for another number of lines, an empty id, and an
    id that occurs again after its document has ended.
    """
    names = [line.strip() for line in read_column(path, "docid")]
    if len(names) != sentences:
        raise ValueError(
            f"--docids {path} has {len(names)} lines, but {option} {text} has {sentences}"
        )
    if "" in names:
        raise ValueError(f"--docids {path}, line {names.index('') + 1}: the id is empty")
    starts = starts_of_documents(names, f"--docids {path}")
    return [Document(names[start], start, stop) for start, stop in pairwise([*starts, sentences])]


def docid_of_each_line(documents: Sequence[Document]) -> list[str]:
    """The id of its document for each line."""
    return [name for name, start, stop in documents for _ in range(start, stop)]


def join(sentences: Sequence[str], documents: Sequence[Document]) -> list[str]:
    """The text of each document: its sentences, joined by spaces."""
    return [" ".join(sentences[start:stop]) for _, start, stop in documents]


def with_context(
    lines: Sequence[str],
    context: Sequence[str],
    documents: Sequence[Document],
    size: int,
    separator: str,
) -> list[str]:
    """Each line after up to `size` lines of `context` that precede it in its document.

    context: as many lines; separator: a token, put between two sentences with a space on each side
    """
    return [
        f" {separator} ".join([*context[max(start, index - size) : index], lines[index]])
        for _, start, stop in documents
        for index in range(start, stop)
    ]


class ScoredTexts(NamedTuple):
    """Line-aligned sentences: those of each system, the references, the sources, if any.

    documents: empty without --docids
    more_references: of other translators, each as many lines
    """

    systems: Mapping[str, list[str]]
    references: list[str]
    sources: list[str]
    documents: list[Document]
    more_references: list[list[str]]

    @property
    def all_references(self) -> list[list[str]]:
        """The lines of each translator."""
        return [self.references, *self.more_references]
