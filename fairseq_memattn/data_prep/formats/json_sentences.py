"""JSON lines: one sentence a line, with its document id and its text in each language."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from fairseq_memattn.data_prep.formats.document_format import DOCID, Format
from fairseq_memattn.data_prep.formats.split_files import read_jsonl
from fairseq_memattn.data_prep.text.aligned import Sentence
from fairseq_memattn.errors import MemAttnError


def read(paths: Sequence[Path], languages: Sequence[str]) -> Iterator[Sentence]:
    """Sentences of the objects. Raises MemAttnError for a text with a line break."""
    breaks: Counter[str] = Counter()
    keys = {name: name for name in (*languages, DOCID)}
    for sentence in read_jsonl(paths[0], languages, keys, breaks):
        if breaks:
            raise MemAttnError(f"{paths[0]}, line {sentence.line}: a text has a line break")
        yield sentence


def write(sentences: Iterable[Sentence], files: Sequence[TextIO], languages: Sequence[str]) -> str:
    """One object a sentence."""
    for sentence in sentences:
        entry = {DOCID: sentence.document, **dict(zip(languages, sentence.texts, strict=True))}
        files[0].write(json.dumps(entry, ensure_ascii=False) + "\n")
    return ""


JSON_SENTENCES = Format(
    read,
    write,
    one_file="jsonl",
    example='PREFIX.jsonl, a sentence a line:  {"docid": "talk_1", "en": "Hello.", "es": "Hola."}',
)
