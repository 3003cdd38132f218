"""G-Transformer's segments: `<s> a sentence </s> <s> the next one </s>` on each line.

A document with more tokens than a line may have becomes several lines, and the format does not
store that they belong together. Each line is therefore read as a document, numbered from 1. The
limit holds for every language and includes the marks. G-Transformer's own script adds up the
longest language of each sentence, and may end a line earlier.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from fairseq_memattn.data_prep.formats.document_format import Format, by_document, lost_ids
from fairseq_memattn.data_prep.text.aligned import Sentence, aligned_lines
from fairseq_memattn.errors import MemAttnError

BEGIN, END = "<s>", "</s>"
MARKS = 2  # tokens that a sentence has besides its text


def segment_sentences(line: str, path: Path, number: int) -> list[str]:
    """The sentences of one line."""
    begin, end = f"{BEGIN} ", f" {END}"
    sentences = line[len(begin) : -len(end)].split(end + " " + begin)
    marked = line.startswith(begin) and line.endswith(end)
    if not marked or any(
        not sentence.strip() or {BEGIN, END} & set(sentence.split()) for sentence in sentences
    ):
        raise MemAttnError(
            f"{path}, line {number}: must be sentences {BEGIN} ... {END}, one after the other, "
            f"but is {line[:60]!r}"
        )
    return sentences


def read(paths: Sequence[Path]) -> Iterator[Sentence]:
    """Sentences of documents of one line."""
    for number, row in aligned_lines(paths):
        columns = [
            segment_sentences(line, path, number) for path, line in zip(paths, row, strict=True)
        ]
        for path, column in zip(paths, columns, strict=True):
            if len(column) != len(columns[0]):
                raise MemAttnError(
                    f"{path}, line {number}: must have as many sentences as {paths[0]}, "
                    f"{len(columns[0])}, but has {len(column)}"
                )
        for texts in zip(*columns, strict=True):
            yield Sentence(texts, str(number), number)


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


def write(sentences: Iterable[Sentence], files: Sequence[TextIO], max_tokens: int) -> str:
    """One line a segment."""
    documents = []
    several = 0
    for docid, document in by_document(sentences):
        segments = list(pack(document, max_tokens))
        for segment in segments:
            for file, texts in zip(
                files, zip(*(sentence.texts for sentence in segment), strict=True), strict=True
            ):
                file.write(" ".join(f"{BEGIN} {text} {END}" for text in texts) + "\n")
        documents.append(docid)
        several += len(segments) > 1
    if several:
        return (
            f"{several} of {len(documents)} documents have more than {max_tokens} tokens and "
            "became several lines, each read back as a document; no ids are kept"
        )
    return lost_ids(documents)


G_TRANSFORMER = Format(
    read,
    write,
    reserved=frozenset({BEGIN, END}),
    max_tokens=512,
    marks=MARKS,
    reading="each line became a document of its own",
    example="lines of at most N tokens:  <s> Hello . </s> <s> Bye . </s> | <s> Well . </s>",
)
