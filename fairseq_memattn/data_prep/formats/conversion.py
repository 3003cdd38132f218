"""Conversion from another format to the format of this project, and back."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tqdm import tqdm

from fairseq_memattn.data_prep.formats import OURS
from fairseq_memattn.data_prep.formats.document_format import Format, Writer
from fairseq_memattn.data_prep.pipeline.outputs import refuse_overwriting
from fairseq_memattn.data_prep.text.aligned import (
    Sentence,
    contiguous,
    read_documents,
    refuse_empty,
)
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import write_all_or_nothing


@dataclass
class Counts:
    """Numbers of documents and sentences, and the longest document, of what `of` has passed on."""

    documents: int = 0
    sentences: int = 0
    longest: int = 0
    longest_id: str = ""

    def of(self, sentences: Iterable[Sentence]) -> Iterator[Sentence]:
        """The same sentences, counted."""
        current, length = None, 0
        for sentence in sentences:
            if sentence.document != current:
                current, length = sentence.document, 0
                self.documents += 1
            self.sentences += 1
            length += 1
            if length > self.longest:
                self.longest, self.longest_id = length, sentence.document
            yield sentence

    def __str__(self) -> str:
        return (
            f"{self.documents} documents, {self.sentences} sentences, "
            f"the longest document {self.longest} ({self.longest_id})"
        )


@dataclass
class Dropped:
    """Counts the lines that are left out because some language has no text there."""

    count: int = 0
    first: int = 0

    def rest(self, sentences: Iterable[Sentence]) -> Iterator[Sentence]:
        """The sentences with text in every language."""
        for sentence in sentences:
            if all(text.strip() for text in sentence.texts):
                yield sentence
            else:
                self.count += 1
                self.first = self.first or sentence.line


def not_empty(sentences: Iterable[Sentence], texts: Sequence[Path]) -> Iterator[Sentence]:
    """The same sentences; raises MemAttnError where a language has no text."""
    for sentence in sentences:
        for path, text in zip(texts, sentence.texts, strict=True):
            refuse_empty(path, sentence.line, text)
        yield sentence


def convert_from(
    form: Format,
    prefix: str,
    languages: Sequence[str],
    output: str,
    *,
    boundaries: Path | None = None,
    drop_empty: bool = False,
    force: bool = False,
) -> list[str]:
    """Convert PREFIX in another format to OUTPUT in ours.

    boundaries: the file of ids or first lines, where it does not have the name of the format
    drop_empty: leave out and count sentences without text in some language
    Returns lines to print: the counts, and what was dropped or is unknown. Raises MemAttnError for
    malformed input, and then writes nothing.
    """
    form = form.of(languages)
    inputs = form.paths(prefix, languages, boundaries)
    sentences = contiguous(form.read(inputs), inputs[-1])
    dropped = Dropped()
    texts = inputs * len(languages) if form.one_file else inputs[: len(languages)]
    sentences = dropped.rest(sentences) if drop_empty else not_empty(sentences, texts)
    report = write_sentences(sentences, inputs, OURS.write, OURS.paths(output, languages), force)
    if dropped.count:
        report.append(
            f"note: {dropped.count} lines without text in some language dropped, "
            f"the first was line {dropped.first}"
        )
    return report + [f"note: {form.reading}"] * bool(form.reading)


def convert_to(
    form: Format,
    prefix: str,
    languages: Sequence[str],
    output: str,
    *,
    boundaries: Path | None = None,
    max_tokens: int | None = None,
    force: bool = False,
) -> list[str]:
    """Convert PREFIX in our format to OUTPUT in another.

    boundaries: the file of ids or first lines, where it should not have the name of the format
    max_tokens: replaces the format's limit on the tokens of a line
    Returns lines to print: the counts, and what the format cannot store. Raises MemAttnError for
    malformed input and for text that the format cannot store, and then writes nothing.
    """
    form = form.of(languages)
    inputs = OURS.paths(prefix, languages)
    limit = max_tokens or form.max_tokens
    write = form.write if limit is None else partial(form.write, max_tokens=limit)
    sentences = fitting(read_documents(inputs), inputs[:-1], form, limit)
    outputs = form.paths(output, languages, boundaries)
    return write_sentences(sentences, inputs, write, outputs, force)


def fitting(
    sentences: Iterable[Sentence], texts: Sequence[Path], form: Format, limit: int | None
) -> Iterator[Sentence]:
    """The same sentences; raises MemAttnError for one that the format cannot store."""
    for sentence in sentences:
        for path, text in zip(texts, sentence.texts, strict=True):
            tokens = text.split()
            marks = form.reserved.intersection([*tokens, *text])
            if marks:
                raise MemAttnError(
                    f"{path}, line {sentence.line}: the text contains {min(marks)!r}, "
                    "which marks a boundary in this format"
                )
            length = len(tokens) + form.marks
            if limit is not None and length > limit:
                raise MemAttnError(
                    f"{path}, line {sentence.line}: --max-tokens must be at least {length} for "
                    f"this sentence, but is {limit}"
                )
        yield sentence


def write_sentences(
    sentences: Iterable[Sentence],
    inputs: Sequence[Path],
    write: Writer,
    outputs: Sequence[Path],
    force: bool,
) -> list[str]:
    """Write everything or nothing; returns the counts and the note of the writer."""
    refuse_overwriting(inputs, outputs, force)
    counts = Counts()
    with write_all_or_nothing(outputs) as files:
        counted = counts.of(tqdm(sentences, unit=" sentences", disable=None))
        note = write(counted, files)
        if counts.sentences == 0:
            raise MemAttnError(f"{inputs[0]}: no sentences")
    return [str(counts)] + [f"note: {note}"] * bool(note)
