"""JSON lines: one document a line, with its id and a list of sentences in each language."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from fairseq_memattn.data_prep.formats.document_format import DOCID, Format, by_document
from fairseq_memattn.data_prep.formats.split_files import (
    json_object,
    text_of,
    the_keys,
    warn_of_unused,
)
from fairseq_memattn.data_prep.text.aligned import Sentence
from fairseq_memattn.data_prep.text.lines import read_lines
from fairseq_memattn.errors import MemAttnError


def read(paths: Sequence[Path], languages: Sequence[str]) -> Iterator[Sentence]:
    """Sentences of the documents.

    Raises MemAttnError for a key that is missing, for what is no list of texts without line breaks,
    and for lists that are empty or of different lengths.
    """
    unused: set[str] = set()
    for number, line in enumerate(read_lines(paths[0]), start=1):
        where = f"{paths[0]}, line {number}"
        entry = json_object(line, where)
        missing = [name for name in (DOCID, *languages) if name not in entry]
        if missing:
            raise MemAttnError(f"{where}: has no key {missing[0]!r}; {the_keys(entry)}")
        document = text_of(entry[DOCID], True, f"{where}: {DOCID!r}", Counter()).strip()
        if not document:
            raise MemAttnError(f"{where}: the id of the document is empty")
        columns = [texts_of(entry[name], f"{where}: {name!r}") for name in languages]
        if len(set(map(len, columns))) > 1:
            sizes = ", ".join(f"{n} has {len(c)}" for n, c in zip(languages, columns, strict=True))
            raise MemAttnError(
                f"{where}: the languages differ in their numbers of sentences: {sizes}"
            )
        unused |= entry.keys() - {DOCID, *languages}
        for place, texts in enumerate(zip(*columns, strict=True)):
            yield Sentence(texts, document, number, begins=place == 0)
    warn_of_unused(paths[0], sorted(unused), {DOCID: DOCID})


def texts_of(value: object, where: str) -> list[str]:
    """A value of JSON as sentences."""
    if not isinstance(value, list) or not value:
        raise MemAttnError(f"{where} must be a list of sentences, but is {json.dumps(value):.40}")
    breaks: Counter[str] = Counter()
    texts = []
    for number, item in enumerate(value, start=1):
        texts.append(text_of(item, False, f"{where}, sentence {number}", breaks))
        if breaks:
            raise MemAttnError(f"{where}, sentence {number} has a line break")
    return texts


def write(sentences: Iterable[Sentence], files: Sequence[TextIO], languages: Sequence[str]) -> str:
    """One object a document."""
    for docid, document in by_document(sentences):
        columns = zip(*(sentence.texts for sentence in document), strict=True)
        entry = {DOCID: docid, **dict(zip(languages, map(list, columns), strict=True))}
        files[0].write(json.dumps(entry, ensure_ascii=False) + "\n")
    return ""


JSON_DOCUMENTS = Format(
    read,
    write,
    one_file="jsonl",
    example='PREFIX.jsonl, a document a line:  {"docid": "talk_1", "en": ["Hello.", "Bye."]}',
)
