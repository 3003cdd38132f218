"""What a format of documents is, and what several formats share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from glob import glob
from itertools import groupby
from pathlib import Path
from typing import Any

from fairseq_memattn.data_prep.text.aligned import Sentence
from fairseq_memattn.errors import MemAttnError

DOCID = "docid"
Reader = Callable[..., Iterator[Sentence]]
Writer = Callable[..., str]


def read_only(*_: object, **__: object) -> str:
    """Stands for the writer of a format that is not written."""
    raise NotImplementedError


@dataclass(frozen=True)
class Format:
    """How files store text in one or several languages and the boundaries of its documents.

    read: takes one file a language, and the file of boundaries last where the format has one.
        Raises MemAttnError for what the format does not allow; the caller refuses empty sentences
        and documents that come back.
    write: takes sentences and open files in the same order, and `max_tokens` where the format has
        a limit. Returns what the format could not store, or "". `read_only` is no writer.
    example: one line for the help, in which " | " ends a line of the file
    boundaries: suffix of the file of boundaries, where {source} is the first language
    reserved: tokens and characters that the text must not contain
    max_tokens: the default limit on the tokens of a line
    marks: tokens that the format adds to each sentence, which count towards the limit
    reading: a note where documents are not read back as they were written
    one_file: suffix of the file, where one file has the ids and all languages. `read` and `write`
        then take the keyword `languages`
    takes: options of `documents from` that the format has
    release: whether --input is the path of a file, or a pattern of several, and `read` takes
        `chosen`, the options and the languages
    """

    read: Reader
    write: Writer
    example: str
    boundaries: str = ""
    reserved: frozenset[str] = frozenset()
    max_tokens: int | None = None
    marks: int = 0
    reading: str = ""
    one_file: str = ""
    takes: tuple[str, ...] = ()
    release: bool = False

    def of(self, languages: Sequence[str]) -> Format:
        """The format whose `read` and `write` know the languages.

        Raises MemAttnError for a language with the name of the ids.
        """
        if not self.one_file:
            return self
        if DOCID in languages:
            raise MemAttnError(f"--langs: {DOCID} is the name of the document ids in this format")
        known = {"languages": tuple(languages)}
        read = self.read if self.release else partial(self.read, **known)
        return replace(self, read=read, write=partial(self.write, **known))

    def paths(
        self, prefix: str, languages: Sequence[str], boundaries: Path | None = None
    ) -> list[Path]:
        """The files of a corpus in this format: PREFIX.LANG, then the boundaries."""
        if self.release:
            found = [Path(path) for path in sorted(glob(prefix))]
            if found or not self.one_file:
                return found or [Path(prefix)]
        if self.one_file:
            suffix = f".{self.one_file}"
            return [Path(prefix.removesuffix(suffix) + suffix)]
        paths = [Path(f"{prefix}.{language}") for language in languages]
        if self.boundaries:
            suffix = self.boundaries.format(source=languages[0])
            paths.append(boundaries or Path(f"{prefix}.{suffix}"))
        return paths


def release(
    read: Reader, takes: tuple[str, ...], example: str, write: Writer = read_only, **others: Any
) -> Format:
    """A format that publishers use."""
    return Format(read, write, example, takes=takes, release=True, **others)


def by_document(sentences: Iterable[Sentence]) -> Iterator[tuple[str, Iterator[Sentence]]]:
    return groupby(sentences, key=lambda sentence: sentence.document)


def lost_ids(documents: Sequence[str]) -> str:
    """A note unless the ids are the numbers 1, 2, ..., with which a format without ids is read."""
    if all(document == str(number) for number, document in enumerate(documents, start=1)):
        return ""
    return f"the document ids are not kept; they are read back as 1 to {len(documents)}"
