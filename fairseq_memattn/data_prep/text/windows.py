"""Windows of n sentences from sentences with document ids, and the last sentence of a window.

Line i of the output is line i of the input preceded by up to n - 1 earlier sentences of its
document, joined by a separator token. Input and output have the same number of lines.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fairseq_memattn.data_prep.text.aligned import read_documents
from fairseq_memattn.errors import MemAttnError


def join_window(sentences: Iterable[str], separator: str) -> str:
    """Sentences of one document, oldest first, as one line."""
    return f" {separator} ".join(sentences)


def last_sentence(line: str, separator: str = "_eos") -> str:
    """The text after the last separator token of a line; the whole line if there is none."""
    tokens = line.split(" ")
    if separator not in tokens:
        return line.strip()
    after = len(tokens) - tokens[::-1].index(separator)
    return " ".join(tokens[after:]).strip()


def count_separators(line: str, separator: str = "_eos") -> int:
    """The number of separator tokens in a line, one less than the number of its sentences."""
    return line.split().count(separator)


def checked_rows(paths: Sequence[Path], separator: str) -> Iterator[tuple[str, ...]]:
    """Rows of line-aligned files, the document id last. Raises MemAttnError for wrong input."""
    for sentence in read_documents(paths):
        for path, line in zip(paths[:-1], sentence.texts, strict=True):
            if separator in line.split():
                raise MemAttnError(
                    f"{path}, line {sentence.line}: the text already contains the separator "
                    f"{separator!r}; choose another with --separator"
                )
        yield (*sentence.texts, sentence.document)


def windows(
    rows: Iterable[tuple[str, ...]], sentences: int = 4, separator: str = "_eos"
) -> Iterator[tuple[str, ...]]:
    """For each row (a sentence in each language, the document id last), a window a language."""
    current = None
    history: deque[tuple[str, ...]] = deque(maxlen=sentences)
    for *texts, docid in rows:
        if docid != current:
            history.clear()
            current = docid
        history.append(tuple(texts))
        yield tuple(join_window(language, separator) for language in zip(*history, strict=True))
