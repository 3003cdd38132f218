"""Formats with several sentences on each line, which is read as a document, numbered from 1."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from fairseq_memattn.data_prep.formats.document_format import by_document, lost_ids
from fairseq_memattn.data_prep.text.aligned import Sentence, aligned_lines
from fairseq_memattn.data_prep.text.lines import write_row
from fairseq_memattn.data_prep.text.windows import count_separators, windows
from fairseq_memattn.errors import MemAttnError

BEGIN, END = "<s>", "</s>"
MARKS = 2  # tokens that a sentence has besides its text in G-Transformer's segments
SEPARATOR = "_eos"  # of Voita et al. (2019)
SENTENCES = 4
EACH_A_DOCUMENT = "each line became a document of its own"


def read_packed(
    paths: Sequence[Path], split: Callable[[str, str], list[str]]
) -> Iterator[Sentence]:
    """Sentences of documents of one line.

    split: the sentences of a line, and its place for errors
    """
    for number, row in aligned_lines(paths):
        places = [f"{path}, line {number}" for path in paths]
        columns = list(map(split, row, places))
        for place, column in zip(places, columns, strict=True):
            if len(column) != len(columns[0]):
                raise MemAttnError(
                    f"{place}: must have as many sentences as {paths[0]}, "
                    f"{len(columns[0])}, but has {len(column)}"
                )
        for texts in zip(*columns, strict=True):
            yield Sentence(texts, str(number), number)


def segment_sentences(line: str, place: str) -> list[str]:
    """The sentences of G-Transformer's `<s> a sentence </s> <s> the next one </s>`."""
    begin, end = f"{BEGIN} ", f" {END}"
    sentences = line[len(begin) : -len(end)].split(end + " " + begin)
    marked = line.startswith(begin) and line.endswith(end)
    if not marked or any(
        not sentence.strip() or {BEGIN, END} & set(sentence.split()) for sentence in sentences
    ):
        raise MemAttnError(
            f"{place}: must be sentences {BEGIN} ... {END}, one after the other, "
            f"but is {line[:60]!r}"
        )
    return sentences


def pack(document: Iterable[Sentence], max_tokens: int) -> Iterator[list[Sentence]]:
    """Consecutive sentences of at most `max_tokens` tokens a language, as many as fit."""
    segment: list[Sentence] = []
    totals: list[int] = []
    for sentence in document:
        lengths = [len(text.split()) + MARKS for text in sentence.texts]
        if segment and any(
            total + length > max_tokens for total, length in zip(totals, lengths, strict=True)
        ):
            yield segment
            segment = []
        totals = [sum(pair) for pair in zip(totals, lengths, strict=True)] if segment else lengths
        segment.append(sentence)
    yield segment


def write_segments(sentences: Iterable[Sentence], files: Sequence[TextIO], max_tokens: int) -> str:
    """One line a segment of at most `max_tokens` tokens in every language, the marks included.

    A longer document becomes several lines. G-Transformer's own script adds up the longest language
    of each sentence, and may end a line earlier.
    """
    documents = []
    several = 0
    for docid, document in by_document(sentences):
        segments = list(pack(document, max_tokens))
        for segment in segments:
            sides = zip(*(sentence.texts for sentence in segment), strict=True)
            write_row(files, [" ".join(f"{BEGIN} {t} {END}" for t in texts) for texts in sides])
        documents.append(docid)
        several += len(segments) > 1
    if several:
        return (
            f"{several} of {len(documents)} documents have more than {max_tokens} tokens and "
            "became several lines, each read back as a document; no ids are kept"
        )
    return lost_ids(documents)


def window_sentences(line: str, place: str) -> list[str]:
    """The four sentences of a line of Voita et al., the last of which is the current one."""
    count = count_separators(line, SEPARATOR) + 1
    sentences = line.split(f" {SEPARATOR} ")
    if count != SENTENCES:
        raise MemAttnError(
            f"{place}: must be {SENTENCES} sentences joined by {SEPARATOR}, but has {count}"
        )
    if len(sentences) != count or not all(sentence.strip() for sentence in sentences):
        raise MemAttnError(f"{place}: a sentence next to {SEPARATOR} is empty")
    return sentences


def write_windows(sentences: Iterable[Sentence], files: Sequence[TextIO]) -> str:
    """One line for each sentence with three before it; the other sentences are counted."""
    documents = never_current = too_short = 0
    for _, document in by_document(sentences):
        length = 0
        for row in windows(((*s.texts, s.document) for s in document), SENTENCES, SEPARATOR):
            length += 1
            if length < SENTENCES:
                never_current += 1
            else:
                write_row(files, row)
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
