"""The documents of a system's output whose lines are not those of the reference."""

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from fairseq_memattn.evaluation.document_lines import Document
from fairseq_memattn.evaluation.fairseq_output import GENERATED, read_lines, read_translations
from fairseq_memattn.evaluation.text_columns import check_characters
from fairseq_memattn.files import parse_json

FORMATS = (
    "give one document a line, an empty line between two documents, or JSON lines with docid and "
    "text"
)


def read_outputs(path: Path, documents: Sequence[Document], separator: str | None) -> list[str]:
    """The text of each document in a file; "" for a document without text.

    The file has JSON lines with `docid` and `text`, output of fairseq-generate with a document as a
    sentence, one document a line, or an empty line between two documents. All of a file is the text
    of a single document.

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
        for key in ("docid", "text"):
            if not isinstance(content.get(key), str):
                raise ValueError(f"{where}: {key} must be a string, but is {content.get(key)!r}")
            check_characters(content[key], f"{where}: {key!r}")
        name = content["docid"].strip()
        if name not in names:
            raise ValueError(
                f"{where}: the reference has no document {name!r}; --docids names its documents"
            )
        if name in texts:
            raise ValueError(f"{where}: document {name!r} occurs a second time")
        texts[name] = content["text"]
    missing = [document.name for document in documents if document.name not in texts]
    if missing:
        raise ValueError(
            f"--system {path} has {len(texts)} of the {len(documents)} documents of the reference; "
            f"the first missing one is {missing[0]!r}"
        )
    return [texts[document.name] for document in documents]
