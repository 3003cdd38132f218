"""The documents of a test set, from a file with one id a line, and those of a system's output."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from fairseq_memattn.evaluation.fairseq_output import GENERATED, read_lines, read_translations
from fairseq_memattn.evaluation.text_columns import check_characters, read_column
from fairseq_memattn.files import parse_json, starts_of_documents


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


class Aligned(NamedTuple):
    """A translation by the lines of its reference, as `memattn align` writes it.

    kept: the text of each line without added sentences, "" for an omitted one
    added: the number of sentences that were added in each line
    """

    kept: list[str]
    added: list[int]


class ScoredTexts(NamedTuple):
    """Line-aligned sentences: those of each system, the references, the sources, if any.

    documents: empty without --docids
    more_references: of other translators, each as many lines
    aligned: of each system, with --segale
    """

    systems: Mapping[str, list[str]]
    references: list[str]
    sources: list[str]
    documents: list[Document]
    more_references: list[list[str]]
    aligned: Mapping[str, Aligned] = {}  # noqa: RUF012

    @property
    def all_references(self) -> list[list[str]]:
        """The lines of each translator."""
        return [self.references, *self.more_references]


FORMATS = (
    "give one document a line, an empty line between two documents, or JSON lines with docid and "
    "text"
)


def read_outputs(path: Path, documents: Sequence[Document], separator: str | None) -> list[str]:
    """The text of each document in a file; "" for a document without text.

    The file has JSON lines with `docid` and `text`, or with WMT's `doc_id` and `hypothesis`; output
    of fairseq-generate with a document as a sentence; one document a line; or an empty line between
    two documents. All of a file is the text of a single document.

    separator: a token that stands between two sentences. A line break takes its place

    Raises ValueError, which names file and line, for other documents than those of the reference,
    for a separator that does not occur, and for a file without text.
    """
    texts = ["\n".join(text.splitlines()) for text in _read(path, documents, separator)]
    if separator is not None:
        token = re.compile(rf"(?<!\S){re.escape(separator)}(?!\S)")
        if not any(map(token.search, texts)):
            raise ValueError(f"--separator {separator} does not occur in --system {path}")
        texts = [token.sub("\n", text) for text in texts]
    if not any(map(str.strip, texts)):
        raise ValueError(f"--system {path} has no text")
    return texts


def _read(path: Path, documents: Sequence[Document], separator: str | None) -> list[str]:
    lines = read_lines(path)
    if any(map(GENERATED.match, lines)):
        try:
            return read_translations(path, len(documents), separator)
        except ValueError as error:
            raise ValueError(f"{error}; each document must be one sentence of its data") from None
    with_text = [line for line in lines if line.strip()]
    if with_text and all(line.lstrip().startswith("{") for line in with_text):
        return _of_json(path, lines, documents)
    if len(documents) == 1:
        return ["\n".join(lines)]
    if len(lines) == len(documents):
        return lines
    groups = groupby(lines, key=lambda line: bool(line.strip()))
    blocks = ["\n".join(block) for has_text, block in groups if has_text]
    if len(blocks) != len(documents):
        raise ValueError(
            f"--system {path} has {len(lines)} lines, and {len(blocks)} blocks of lines between "
            f"empty ones, but the reference has {len(documents)} documents; {FORMATS}"
        )
    return blocks


def _of_json(path: Path, lines: Sequence[str], documents: Sequence[Document]) -> list[str]:
    names = {document.name for document in documents}
    texts: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"--system {path}, line {number}"
        content = parse_json(line, where)
        of_wmt = "doc_id" in content and "hypothesis" in content
        id_key, text_key = ("doc_id", "hypothesis") if of_wmt else ("docid", "text")
        for key in (id_key, text_key):
            if not isinstance(content.get(key), str):
                raise ValueError(f"{where}: {key} must be a string, but is {content.get(key)!r}")
            check_characters(content[key], f"{where}: {key!r}")
        name = content[id_key].strip()
        if of_wmt and name not in names:
            continue  # a system's file has all pairs of languages
        if name not in names:
            raise ValueError(
                f"{where}: the reference has no document {name!r}; --docids names its documents"
            )
        if name in texts:
            raise ValueError(f"{where}: document {name!r} occurs a second time")
        texts[name] = content[text_key]
    missing = [document.name for document in documents if document.name not in texts]
    if missing:
        raise ValueError(
            f"--system {path} has {len(texts)} of the {len(documents)} documents of the reference; "
            f"the first missing one is {missing[0]!r}"
        )
    return [texts[document.name] for document in documents]
