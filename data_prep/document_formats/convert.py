"""From another format to ours and back."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tqdm import tqdm

from data_prep.aligned import Sentence, contiguous, read_documents, refuse_empty
from data_prep.document_formats.base import Format, Writer
from data_prep.document_formats.segments import MARKS
from data_prep.document_formats.sidecar import OURS
from data_prep.files import DataError, refuse_overwriting, write_all_or_nothing


@dataclass
class Counts:
    """Documents, sentences, and the longest document, of the sentences that `of` passed on."""

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
    """Lines that were left out because a language had no text there."""

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
    """The same sentences; a DataError where a language has no text."""
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
    """PREFIX in another format to OUTPUT in ours.

    `boundaries` is the file of ids or first lines where it is not called as the format would have
    it. With `drop_empty` sentences without text in some language are left out, and counted.
    Returns what to tell: the counts, and what was dropped or could not be known. Raises DataError
    for malformed input; nothing is written then.
    """
    inputs = form.paths(prefix, languages, boundaries)
    sentences = contiguous(form.read(inputs), inputs[-1])
    dropped = Dropped()
    texts = inputs[: len(languages)]
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
    """PREFIX in our format to OUTPUT in another.

    `boundaries` is where the ids or first lines go if not where the format would have them;
    `max_tokens` replaces the format's limit on the tokens of a line. Returns what to tell: the
    counts, and what the format could not hold. Raises DataError for malformed input, and for text
    that the format cannot hold; nothing is written then.
    """
    inputs = OURS.paths(prefix, languages)
    limit = max_tokens or form.max_tokens
    write = form.write if limit is None else partial(form.write, max_tokens=limit)
    sentences = fitting(read_documents(inputs), inputs[:-1], form, limit)
    outputs = form.paths(output, languages, boundaries)
    return write_sentences(sentences, inputs, write, outputs, force)


def fitting(
    sentences: Iterable[Sentence], texts: Sequence[Path], form: Format, limit: int | None
) -> Iterator[Sentence]:
    """The same sentences; a DataError for one that the format cannot hold."""
    for sentence in sentences:
        for path, text in zip(texts, sentence.texts, strict=True):
            tokens = text.split()
            marks = form.reserved.intersection(tokens)
            if marks:
                raise DataError(
                    f"{path}, line {sentence.line}: the text holds {min(marks)!r}, "
                    "which marks a boundary in this format"
                )
            if limit is not None and len(tokens) + MARKS > limit:
                raise DataError(
                    f"{path}, line {sentence.line}: --max-tokens must be at least "
                    f"{len(tokens) + MARKS} for this sentence, but is {limit}"
                )
        yield sentence


def write_sentences(
    sentences: Iterable[Sentence],
    inputs: Sequence[Path],
    write: Writer,
    outputs: Sequence[Path],
    force: bool,
) -> list[str]:
    """Write all or nothing; returns the counts and the writer's remark."""
    refuse_overwriting(inputs, outputs, force)
    counts = Counts()
    with write_all_or_nothing(outputs) as files:
        counted = counts.of(tqdm(sentences, unit=" sentences", disable=None))
        remark = write(counted, files)
        if counts.sentences == 0:
            raise DataError(f"{inputs[0]}: no sentences")
    return [str(counts)] + [f"note: {remark}"] * bool(remark)
