"""Line-aligned text in plain files, JSON lines and tab-separated values.

An argument FILE is a plain file with one text a line, FILE.jsonl or FILE.jsonl:KEY with one object
a line, or FILE.tsv or FILE.tsv:COLUMN. COLUMN is a name in the first line, which then is a header,
or the number of a field, from 1, in a table without a header.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import parse_json, read_lines

TABLE = re.compile(r"(.+?\.(jsonl|tsv))(?::(.+))?", re.S)
FORMATS = ("text", "jsonl", "tsv")


def file_of(path: Path) -> Path:
    """The file of an argument, without the key or column."""
    found = TABLE.fullmatch(str(path))
    return Path(found[1]) if found else path


def is_table(path: Path) -> bool:
    """Whether an argument names JSON lines or tab-separated values."""
    return bool(TABLE.fullmatch(str(path)))


def format_of(path: Path | None) -> str:
    """The member of FORMATS that the suffix of a file means."""
    found = path and TABLE.fullmatch(str(path))
    return found[2] if found else "text"


def read_column(path: Path, default: str) -> list[str]:
    """The texts of an argument FILE, one for each line of a sentence.

    default: the key or column of an argument that names none

    Raises ValueError, which names the file, the line and the key, for what is missing, is no text,
    or contains a line break.
    """
    found = TABLE.fullmatch(str(path))
    if not found:
        return read_lines(path)
    file, kind, column = Path(found[1]), found[2], found[3] or default
    return list((_objects if kind == "jsonl" else _fields)(file, column))


def has_column(path: Path, column: str) -> bool:
    """Whether the first line of a table has a key, or a column of that name."""
    file = file_of(path)
    first = read_lines(file)[:1]
    if format_of(path) == "jsonl":
        return any(column in json_object(line, f"{file}, line 1") for line in first)
    return any(column in line.split("\t") for line in first)


def table_lines(columns: Mapping[str, Sequence[str]], kind: str) -> Iterator[str]:
    """The lines of a table, without line ends. A table of tab-separated values has a header.

    columns: texts by name, equally many of each
    kind: "jsonl" or "tsv"

    Raises ValueError, which names line and column, for a tab in tab-separated values.
    """
    if kind == "tsv":
        yield "\t".join(columns)
    for number, row in enumerate(zip(*columns.values(), strict=True), start=1):
        if kind == "jsonl":
            yield json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False)
            continue
        for name, text in zip(columns, row, strict=True):
            if "\t" in text:
                raise ValueError(
                    f"line {number}: {name!r} contains a tab, which tab-separated values cannot "
                    "store; choose jsonl"
                )
        yield "\t".join(row)


def _objects(file: Path, key: str) -> Iterator[str]:
    for number, line in enumerate(read_lines(file), start=1):
        where = f"{file}, line {number}"
        entry = json_object(line, where)
        if key not in entry:
            raise ValueError(f"{where}: has no key {key!r}, but {', '.join(entry):.100}")
        yield _text(entry[key], f"{where}: {key!r}")


def json_object(line: str, where: str) -> dict[str, Any]:
    """A line of JSON lines; the texts in `translation`, as datasets have them, are its own.

    Raises MemAttnError for what is not an object.
    """
    entry = parse_json(line, where)
    if not isinstance(entry, dict):
        raise MemAttnError(f"{where}: must be an object, from {{ to }}")
    inner = entry.get("translation")
    if not isinstance(inner, dict) or inner.keys() & entry.keys():
        return entry
    return {key: value for key, value in entry.items() if key != "translation"} | inner


def _text(value: Any, where: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):  # the id of a document
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"{where} must be text, but is {json.dumps(value):.40}")
    if "\n" in value or "\r" in value:
        raise ValueError(f"{where} contains a line break; a sentence must be one line")
    check_characters(value, where)
    return value


def check_characters(value: str, where: str) -> None:
    """Raises ValueError for half of a surrogate pair, which JSON can contain and UTF-8 cannot."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{where} contains half of a surrogate pair") from None


def _fields(file: Path, column: str) -> Iterator[str]:
    lines = enumerate(read_lines(file), start=1)
    if column.isdecimal():
        place = int(column[:9]) - 1
        if place < 0:
            raise ValueError(f"{file}:{column}: the number of a column must be at least 1")
    else:
        header = next(lines, (1, ""))[1].split("\t")
        if column not in header:
            raise ValueError(
                f"{file}, line 1: has no column {column!r}, but {', '.join(header):.100}; name "
                f"one, or give its number in a table without a header, as in {file}:1"
            )
        place = header.index(column)
    for number, line in lines:
        fields = line.split("\t")
        if place >= len(fields):
            raise ValueError(
                f"{file}, line {number}: has {len(fields)} fields, which tabs separate, but column "
                f"{column!r} is number {place + 1}"
            )
        yield fields[place]
