"""Voita et al. (2019): four sentences joined by `_eos` on each line, the last one current.

A line always has four sentences. Hence the first three sentences of a document have no line of
their own, and a document of fewer than four sentences is left out; both are counted. The format
does not store documents: each line is read as a document of four sentences, numbered from 1.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from fairseq_memattn.data_prep.formats.document_format import Format, by_document
from fairseq_memattn.data_prep.text.aligned import Sentence, aligned_lines
from fairseq_memattn.data_prep.text.windows import count_separators, windows
from fairseq_memattn.errors import MemAttnError

SEPARATOR = "_eos"
SENTENCES = 4


def window_sentences(line: str, path: Path, number: int) -> list[str]:
    """The sentences of one line."""
    count = count_separators(line, SEPARATOR) + 1
    sentences = line.split(f" {SEPARATOR} ")
    if count != SENTENCES:
        raise MemAttnError(
            f"{path}, line {number}: must be {SENTENCES} sentences joined by {SEPARATOR}, "
            f"but has {count}"
        )
    if len(sentences) != count or not all(sentence.strip() for sentence in sentences):
        raise MemAttnError(f"{path}, line {number}: a sentence next to {SEPARATOR} is empty")
    return sentences


def read(paths: Sequence[Path]) -> Iterator[Sentence]:
    """Sentences of documents of one line."""
    for number, row in aligned_lines(paths):
        columns = [
            window_sentences(line, path, number) for path, line in zip(paths, row, strict=True)
        ]
        for texts in zip(*columns, strict=True):
            yield Sentence(texts, str(number), number)


def write(sentences: Iterable[Sentence], files: Sequence[TextIO]) -> str:
    """One line for each sentence with three before it."""
    documents = never_current = too_short = 0
    for _, document in by_document(sentences):
        length = 0
        for row in windows(((*s.texts, s.document) for s in document), SENTENCES, SEPARATOR):
            length += 1
            if length < SENTENCES:
                never_current += 1
                continue
            for text, file in zip(row, files, strict=True):
                file.write(text + "\n")
        documents += 1
        too_short += length < SENTENCES
    if too_short == documents:
        raise MemAttnError(
            f"no document has {SENTENCES} sentences, which a line in this format needs"
        )
    return (
        f"{never_current} sentences have fewer than {SENTENCES - 1} before them and no line of "
        f"their own; {too_short} documents of fewer than {SENTENCES} sentences are left out"
    )


VOITA = Format(
    read,
    write,
    reserved=frozenset({SEPARATOR}),
    reading="each line became a document of its own",
    example="four sentences a line, the last one current:  Hello. _eos Bye. _eos Well. _eos Then?",
)
