"""Splits in one file: tab-separated values, JSON lines, and SGM or XML documents."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from data_prep.aligned import Sentence
from data_prep.files import DataError, read_lines
from data_prep.sgml_segments import has_sides, read_parallel, read_segments

DOCID = "docid"
Reader = Callable[[Path, Sequence[str], Mapping[str, str], Counter[str]], Iterator[Sentence]]


def read_tsv(
    path: Path, languages: Sequence[str], columns: Mapping[str, str], counts: Counter[str]
) -> Iterator[Sentence]:
    """The rows of a table. Tabs separate fields; quotes have no meaning.

    columns: the number of each field, from 1, or its name in the first line, which then is a header
    """
    lines = enumerate(read_lines(path), start=1)
    if all(column.isdecimal() for column in columns.values()):
        places = {name: int(column[:9]) - 1 for name, column in columns.items()}
    else:
        header = next(lines, (1, ""))[1].split("\t")
        for column in columns.values():
            if column not in header:
                raise DataError(f"{path}, line 1: no column {column} in {' '.join(header)!r:.60}")
        places = {name: header.index(column) for name, column in columns.items()}
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) <= max(places.values()):
            raise DataError(
                f"{path}, line {number}: must have at least {max(places.values()) + 1} fields, "
                f"which tabs separate, but has {len(fields)}"
            )
        yield sentence(path, number, {name: fields[at] for name, at in places.items()}, languages)


def read_jsonl(
    path: Path, languages: Sequence[str], columns: Mapping[str, str], counts: Counter[str]
) -> Iterator[Sentence]:
    """The objects of a file with one a line. columns: the key of each text

    An id of a document may be a number. Line breaks in a text become spaces and are counted.
    """
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise DataError(f"{where}: not JSON ({error})") from None
        except RecursionError:
            raise DataError(f"{where}: the JSON is nested too deeply") from None
        if not isinstance(entry, dict):
            raise DataError(f"{where}: must be an object, from {{ to }}")
        row = {}
        for name, key in columns.items():
            if key not in entry:
                raise DataError(f"{where}: has no key {key!r}")
            row[name] = text_of(entry[key], name == DOCID, f"{where}: {key!r}", counts)
        yield sentence(path, number, row, languages)


def text_of(value: object, is_id: bool, where: str, counts: Counter[str]) -> str:
    """A value of JSON as one line of text."""
    if is_id and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise DataError(f"{where} must be text, but is {type(value).__name__}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f"{where} contains half of a surrogate pair") from None
    if "\n" in value or "\r" in value:
        counts["texts with line breaks, which became spaces"] += 1
        return " ".join(value.split())
    return value


def sentence(path: Path, line: int, row: Mapping[str, str], languages: Sequence[str]) -> Sentence:
    """A row as a sentence. Raises DataError for an empty id of its document."""
    document = row.get(DOCID, "").strip()
    if DOCID in row and not document:
        raise DataError(f"{path}, line {line}: the id of the document is empty")
    return Sentence(tuple(row[language] for language in languages), document, line)


def parts(path: Path) -> list[Path]:
    """The paths that `os.pathsep` joins."""
    return [Path(part) for part in str(path).split(os.pathsep)]


def read_sgm(
    path: Path, languages: Sequence[str], columns: Mapping[str, str], counts: Counter[str]
) -> Iterator[Sentence]:
    """The segments of an XML file with all languages, or of one SGM file for each language.

    path: for several files their paths, joined by `os.pathsep`
    """
    paths = parts(path)
    if len(paths) == 1 and (len(languages) == 2 or has_sides(paths[0])):
        yield from read_parallel(paths[0], languages, counts)
        return
    sides = [list(read_segments(part, counts)) for part in paths]
    for one, *others in zip(*sides, strict=False):
        for other, part in zip(others, paths[1:], strict=True):
            if one.document != other.document:
                raise DataError(
                    f"{paths[0]}, line {one.line}: document {one.document}, but {part}, line "
                    f"{other.line}, has document {other.document}"
                )
        yield Sentence((one.text, *(other.text for other in others)), one.document, one.line)
    if len({len(side) for side in sides}) > 1:
        numbers = ", ".join(f"{p} has {len(s)}" for p, s in zip(paths, sides, strict=True))
        raise DataError(f"the files must have the same number of segments: {numbers}")


READERS: dict[str, Reader] = {"tsv": read_tsv, "jsonl": read_jsonl, "sgm": read_sgm}


def find_columns(
    kind: str, given: Sequence[tuple[str, str]] | None, languages: Sequence[str]
) -> dict[str, str]:
    """The column or key of each language and of the document id, if there is one.

    By default the fields of a table are the languages in their order, and the keys are their names.
    Raises DataError for columns that do not name each language once.
    """
    if kind == "sgm":
        if given:
            raise DataError("--columns requires --format tsv or jsonl")
        return {}
    if given is None:
        numbers = enumerate(languages, start=1)
        return {name: str(at) if kind == "tsv" else name for at, name in numbers}
    columns = dict(given)
    if len(columns) < len(given) or set(columns) - {DOCID} != set(languages):
        raise DataError(
            f"--columns must name each of {', '.join(languages)} once, and {DOCID} where there are "
            f"document ids, but names {', '.join(name for name, _ in given)}"
        )
    if kind == "tsv" and "0" in columns.values():
        raise DataError("--columns must be numbers from 1 or names, but one is 0")
    return columns


def find_files(
    text: Mapping[str, Path], kind: str, languages: Sequence[str]
) -> dict[str, list[Path]]:
    """The files of each split. Raises DataError for a file that is missing."""
    files = {}
    for split, path in text.items():
        files[split] = parts(path) if kind == "sgm" else [path]
        if len(files[split]) not in (1, len(languages)):
            raise DataError(
                f"--text {split}={path}: must be one file, or one for each of "
                f"{', '.join(languages)}, but is {len(files[split])}"
            )
        for part in files[split]:
            if not part.is_file():
                raise DataError(f"--text {split}={path}: {part}: no such file")
    return files
