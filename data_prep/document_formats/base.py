"""What a format of documents is, and what several of them share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TextIO

from data_prep.aligned import Sentence

Reader = Callable[[Sequence[Path]], Iterator[Sentence]]
Writer = Callable[..., str]


@dataclass(frozen=True)
class Format:
    """How text in one or several languages and the boundaries of its documents lie in files.

    `read` takes one file a language, and the file of boundaries last where there is one. It
    raises DataError for what the format does not allow; empty sentences and documents that come
    back are for the caller to refuse.

    `write` takes sentences and open files in the same order, and the limit on a line's tokens
    where the format has one. It returns what the format could not hold of them, or "".
    """

    read: Reader
    write: Writer
    example: str
    boundaries: str = ""  # suffix of their file, where {source} is the first language
    reserved: frozenset[str] = frozenset()  # tokens that its text must not hold
    max_tokens: int | None = None  # the default of its limit
    reading: str = ""  # what becomes of documents that the format knows nothing of

    def paths(
        self, prefix: str, languages: Sequence[str], boundaries: Path | None = None
    ) -> list[Path]:
        """The files of a corpus in this format: PREFIX.LANG, then the boundaries."""
        paths = [Path(f"{prefix}.{language}") for language in languages]
        if self.boundaries:
            suffix = self.boundaries.format(source=languages[0])
            paths.append(boundaries or Path(f"{prefix}.{suffix}"))
        return paths


def by_document(sentences: Iterable[Sentence]) -> Iterator[tuple[str, Iterator[Sentence]]]:
    """Each document's id and its sentences."""
    return groupby(sentences, key=lambda sentence: sentence.document)


def write_texts(sentence: Sentence, files: Sequence[TextIO]) -> None:
    """One line a language."""
    for text, file in zip(sentence.texts, files, strict=True):
        file.write(text + "\n")


def lost_ids(documents: Sequence[str]) -> str:
    """A remark unless the ids are the numbers 1, 2, ... that a format without ids gives back."""
    if all(document == str(number) for number, document in enumerate(documents, start=1)):
        return ""
    return f"the document ids are not kept; they are read back as 1 to {len(documents)}"
