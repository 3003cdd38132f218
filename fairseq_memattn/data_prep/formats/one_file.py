"""Text of all languages in one file: tab-separated values, JSON lines, SGM or XML documents."""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import TextIO

from fairseq_memattn.data_prep.formats.document_format import DOCID, by_document
from fairseq_memattn.data_prep.formats.sgml_segments import (
    has_sides,
    read_parallel,
    read_segment_rows,
)
from fairseq_memattn.data_prep.formats.wit3 import is_tagged, read_talks
from fairseq_memattn.data_prep.text.aligned import Sentence
from fairseq_memattn.data_prep.text.lines import read_lines
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.evaluation.text_columns import json_object

NAMES = "--columns takes names for a table with a header and numbers for one without"
Reader = Callable[[Path, Sequence[str], Mapping[str, str], Counter[str]], Iterator[Sentence]]


def read_tsv(
    path: Path, languages: Sequence[str], columns: Mapping[str, str], counts: Counter[str]
) -> Iterator[Sentence]:
    """The rows of a table. Tabs separate fields; quotes have no meaning.

    columns: the number of each field, from 1, or its name in the first line, which then is a header

    A blank row has no text in any language.

    A warning names fields that are not used, and a note the first row of a table without a header.
    """
    lines = enumerate(read_lines(path), start=1)
    header: list[str] = []
    if not numbered(columns):
        header = next(lines, (1, ""))[1].split("\t")
        for column in columns.values():
            if column not in header:
                raise MemAttnError(
                    f"{path}, line 1: no column {column} in {' '.join(header)!r:.60}; {NAMES}"
                )
        places = {name: header.index(column) for name, column in columns.items()}
    else:
        places = {name: int(column[:9]) - 1 for name, column in columns.items()}
    most = len(header)
    for number, line in lines:
        fields = line.split("\t") if line.strip() else [""] * (max(places.values()) + 1)
        most = max(most, len(fields))
        if len(fields) <= max(places.values()):
            raise MemAttnError(
                f"{path}, line {number}: must have at least {max(places.values()) + 1} fields, "
                f"which tabs separate, but has {len(fields)}"
            )
        row = {name: fields[at] for name, at in places.items()}
        if number == 1:
            print(f"note: {path}, line 1 is read as text: {shown(row)}; {NAMES}")
        yield sentence(path, number, row, languages)
    names = [*header, *(str(at + 1) for at in range(len(header), most))]
    unused = [name for at, name in enumerate(names) if at not in places.values()]
    warn_of_unused(path, unused, columns)


def read_jsonl(
    path: Path, languages: Sequence[str], columns: Mapping[str, str], counts: Counter[str]
) -> Iterator[Sentence]:
    """The objects of a file with one a line. columns: the key of each text

    An id of a document may be a number. The texts may be in an object `translation`. Line breaks in
    a text become spaces and are counted. A warning names keys that are not used.
    """
    unused: set[str] = set()
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        entry = json_object(line, where)
        if DOCID in entry and DOCID not in columns:
            raise MemAttnError(f"{where}: has a {DOCID}, but line 1 has none; give all lines one")
        row = {}
        for name, key in columns.items():
            if key not in entry:
                raise MemAttnError(f"{where}: has no key {key!r}; {the_keys(entry)}")
            row[name] = text_of(entry[key], name == DOCID, f"{where}: {key!r}", counts)
        unused |= entry.keys() - columns.values()
        yield sentence(path, number, row, languages)
    warn_of_unused(path, sorted(unused), columns)


def the_keys(entry: Iterable[str]) -> str:
    return f"the keys are {', '.join(entry) or 'none':.200}"


def warn_of_unused(path: Path, names: Sequence[str], columns: Mapping[str, str]) -> None:
    """Print the names of columns or keys that are not read."""
    if names:
        advice = "" if DOCID in columns else f"; --columns {DOCID}=COLUMN reads document ids"
        print(
            f"warning: {path}: columns that are not used: {', '.join(names):.200}{advice}",
            file=sys.stderr,
        )


def text_of(value: object, is_id: bool, where: str, counts: Counter[str]) -> str:
    """A value of JSON as one line of text."""
    if is_id and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise MemAttnError(f"{where} must be text, but is {type(value).__name__}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise MemAttnError(f"{where} contains half of a surrogate pair") from None
    if "\n" in value or "\r" in value:
        counts["texts with line breaks, which became spaces"] += 1
        return " ".join(value.split())
    return value


def sentence(path: Path, line: int, row: Mapping[str, str], languages: Sequence[str]) -> Sentence:
    """A row as a sentence. Raises MemAttnError for an empty id of its document."""
    document = row.get(DOCID, "").strip()
    if DOCID in row and not document:
        raise MemAttnError(f"{path}, line {line}: the id of the document is empty")
    return Sentence(tuple(row[language] for language in languages), document, line)


# --------------------------------------------------------------- with the ids of documents


def write_json_sentences(
    sentences: Iterable[Sentence], files: Sequence[TextIO], languages: Sequence[str]
) -> str:
    for sentence in sentences:
        entry = {DOCID: sentence.document, **dict(zip(languages, sentence.texts, strict=True))}
        files[0].write(json.dumps(entry, ensure_ascii=False) + "\n")
    return ""


def read_json_documents(paths: Sequence[Path], languages: Sequence[str]) -> Iterator[Sentence]:
    """Sentences of objects with an id and a list of sentences in each language.

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


def write_json_documents(
    sentences: Iterable[Sentence], files: Sequence[TextIO], languages: Sequence[str]
) -> str:
    for docid, document in by_document(sentences):
        columns = zip(*(sentence.texts for sentence in document), strict=True)
        entry = {DOCID: docid, **dict(zip(languages, map(list, columns), strict=True))}
        files[0].write(json.dumps(entry, ensure_ascii=False) + "\n")
    return ""


def read_table(
    paths: Sequence[Path], languages: Sequence[str], columns: Sequence[tuple[str, str]] = ()
) -> Iterator[Sentence]:
    """Sentences of the rows.

    columns: the names in the header or the numbers, from 1, of languages and ids of documents
        whose column has another name
    """
    names = {name: name for name in (*languages, DOCID)}
    if columns:
        names = find_columns("tsv", columns, languages, paths[:1])
        if DOCID not in names:
            raise MemAttnError(f"--columns must name the column of {DOCID}, such as {DOCID}=1")
    return read_tsv(paths[0], languages, names, Counter())


def write_table(
    sentences: Iterable[Sentence], files: Sequence[TextIO], languages: Sequence[str]
) -> str:
    """A header, and one row a sentence. Raises MemAttnError for a document id with a tab."""
    files[0].write("\t".join((DOCID, *languages)) + "\n")
    for sentence in sentences:
        if "\t" in sentence.document:
            raise MemAttnError(
                f"line {sentence.line}: the document id {sentence.document!r} contains a tab, "
                "which separates fields in this format"
            )
        files[0].write("\t".join((sentence.document, *sentence.texts)) + "\n")
    return ""


# --------------------------------------------------------------- the splits of a corpus


def parts(path: Path) -> list[Path]:
    """The paths that `os.pathsep` joins."""
    return [Path(part) for part in str(path).split(os.pathsep)]


def read_sgm(
    path: Path,
    languages: Sequence[str],
    columns: Mapping[str, str],
    counts: Counter[str],
    test_suites: bool = False,
) -> Iterator[Sentence]:
    """The segments of an XML file with all languages, or of one SGM file for each language.

    The latter may be WIT3's training text.

    path: for several files their paths, joined by `os.pathsep`
    test_suites: whether the documents of test suites are read
    """
    paths = parts(path)
    if len(paths) == 1 and (len(languages) == 2 or has_sides(paths[0])):
        yield from read_parallel(paths[0], languages, counts, test_suites)
        return
    yield from (read_talks if is_tagged(paths[0]) else read_segment_rows)(paths, counts)


READERS: dict[str, Reader] = {"tsv": read_tsv, "jsonl": read_jsonl, "sgm": read_sgm}


def find_columns(
    kind: str,
    given: Sequence[tuple[str, str]] | None,
    languages: Sequence[str],
    paths: Sequence[Path],
) -> dict[str, str]:
    """The column or key of each language and of the document id, if there is one.

    given: those of --columns; paths: the files, whose first lines may name columns that are not
        given: keys and the header of a table are the names of the languages and docid; the fields
        of a table without a header are the languages in their order
    Raises MemAttnError for columns that do not name each language once, or the document id alone,
    and for fields that are neither named nor given.
    """
    if kind == "sgm":
        if given:
            raise MemAttnError("--columns requires --format tsv or jsonl")
        return {}
    columns = dict(given or ())
    if len(columns) < len(given or ()) or set(columns) - {DOCID} not in (set(), set(languages)):
        raise MemAttnError(
            f"--columns must name each of {', '.join(languages)} once, and {DOCID} where there are "
            f"document ids, but names {', '.join(name for name, _ in given or ())}"
        )
    if kind == "tsv" and "0" in columns.values():
        raise MemAttnError("--columns must be numbers from 1 or names, but one is 0")
    # The keys of the first object, or the fields of the first line of a table.
    first: dict[Path, list[str]] = {path: [] for path in paths}
    for path in paths:
        for line in islice(read_lines(path), 1):
            whole = line.split("\t") if kind == "tsv" else json_object(line, f"{path}, line 1")
            first[path] = [*whole]
    has_header = any(set(languages) <= set(names) for names in first.values())
    if kind == "tsv" and numbered(columns) and (columns or not has_header):
        if not columns:
            refuse_unnamed(first, languages)
        # Those of languages that are not given are the first free ones.
        free = (str(n) for n in count(1) if str(n) not in columns.values())
        return {**{name: columns.get(name) or next(free) for name in languages}, **columns}
    named = {language: columns.get(language, language) for language in languages}
    if DOCID in columns or any(DOCID in names for names in first.values()):
        named[DOCID] = columns.get(DOCID, DOCID)
    return named


def numbered(columns: Mapping[str, str]) -> bool:
    """Whether the columns are given by their numbers."""
    return all(column.isdecimal() for column in columns.values())


def refuse_unnamed(first: Mapping[Path, Sequence[str]], languages: Sequence[str]) -> None:
    """Raises MemAttnError for tables that have more fields than there are languages."""
    for path, fields in first.items():
        if len(fields) > len(languages):
            example = " ".join(f"{name}=N" for name in (*languages, DOCID))
            numbers = map(str, count(1))
            raise MemAttnError(
                f"{path}, line 1: has {len(fields)} fields, but --langs names {len(languages)}; "
                f"give the column of each, --columns {example}, by its name if the table has a "
                "header and by its number if it has none; the fields are "
                f"{shown(dict(zip(numbers, fields, strict=False)))}"
            )


def shown(fields: Mapping[str, str]) -> str:
    """The beginnings of fields with their names or numbers, in a message."""
    return ", ".join(f"{name} {field[:20]!r}" for name, field in fields.items())


def find_files(
    text: Mapping[str, Path], kind: str, languages: Sequence[str]
) -> dict[str, list[Path]]:
    """The files of each split. Raises MemAttnError for a file that is missing."""
    files = {}
    for split, path in text.items():
        files[split] = parts(path) if kind == "sgm" else [path]
        if len(files[split]) not in (1, len(languages)):
            raise MemAttnError(
                f"--text {split}={path}: must be one file, or one for each of "
                f"{', '.join(languages)}, but is {len(files[split])}"
            )
        for part in files[split]:
            if not part.is_file():
                raise MemAttnError(f"--text {split}={path}: {part}: no such file")
    return files
