"""Corpora and test sets of documents in the files that their publishers release.

Where each format is known from:

    wmt24pp    the data card of google/wmt24pp (Deutsch et al., 2025)
    wmt        the README files and data of wmt-conference/wmt25-general-mt and wmt26-general-mt
               (Kocmi et al., 2025). How WMT26 stores a reference is not known: as text, or as WMT25
    dochplt    the data card and loading script of HPLT/DocHPLT (O'Brien et al., 2025)
    paradocs   the script `paradocs` of rewicks/ParaDocs (Wicks, Post and Koehn, 2024)
    guofeng    the README of longyuewangdcu/GuoFeng-Webnovel, V1 (Wang et al., 2023)

A reader holds one document in memory at a time.
"""

import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

from fairseq_memattn.data_prep.formats.document_format import DOCID, by_document
from fairseq_memattn.data_prep.formats.one_file import read_sgm, text_of, the_keys
from fairseq_memattn.data_prep.text.aligned import Sentence
from fairseq_memattn.data_prep.text.lines import progress, raw_pairs, read_lines
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.evaluation.text_columns import json_object

Entry = Mapping[str, Any]
CONDITION = re.compile("([^<>=!]+)(>=|<=|!=|=)(.*)", re.S)
SEGMENTS = ("rows", "paragraphs")


def condition(given: str) -> tuple[str, str, str]:
    """KEY=VALUE, KEY!=VALUE, KEY>=NUMBER or KEY<=NUMBER. Raises ValueError for another form."""
    found = CONDITION.fullmatch(given)
    if not found:
        raise ValueError(given)
    key, sign, value = found.groups()
    if sign in (">=", "<="):
        float(value)
    return key, sign, value


@dataclass(frozen=True)
class Choice:
    """What is read of a release.

    counts: gets the numbers of what is left out
    columns: the key of a language or of the document's id, if it is not the name
    where: a `condition` for each row, or for each pair of sentences in a row
    segments: what becomes a line, one of SEGMENTS or "" for the default of the format
    test_suites: whether WMT's test suites are read
    """

    languages: Sequence[str]
    counts: Counter[str]
    columns: Mapping[str, str] = field(default_factory=dict)
    where: Sequence[tuple[str, str, str]] = ()
    segments: str = ""
    test_suites: bool = False

    def takes(self, entry: Entry, where: str, what: str) -> bool:
        """Whether all conditions hold; the first one that does not is counted.

        Raises MemAttnError for a missing key, and for a value that is no number.
        """
        for key, sign, wanted in self.where:
            value = value_at(entry, key, where)
            if sign in ("=", "!="):
                text = value if isinstance(value, str) else json.dumps(value)
                holds = (text == wanted) == (sign == "=")
            else:
                try:
                    more = float(value) - float(wanted)
                except (TypeError, ValueError):
                    text = f"{key!r} must be a number, but is {value!r:.40}"
                    raise MemAttnError(f"{where}: {text}") from None
                holds = more >= 0 if sign == ">=" else more <= 0
            if not holds:
                self.counts[f"{what} without {key}{sign}{wanted} left out"] += 1
                return False
        return True


def value_at(entry: Entry, key: str, where: str) -> Any:
    """The value of a key, or of a path of keys between dots, such as refs.refA.ref."""
    value: Any = entry
    for name in [key] if key in entry else key.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise MemAttnError(f"{where}: has no key {key!r}; {the_keys(entry)}")
        value = value[name]
    return value


def objects(paths: Sequence[Path]) -> Iterator[tuple[int, str, Entry]]:
    """The number, place and content of each object of JSON lines, and of each row of Parquet."""
    for path in paths:
        text = path.suffix != ".parquet"
        rows = progress(read_lines(path), path.name, path) if text else parquet_rows(path)
        for number, row in enumerate(rows, start=1):
            where = f"{path}, line {number}"
            yield number, where, json_object(row, where) if isinstance(row, str) else row


def parquet_rows(path: Path) -> Iterator[Any]:
    """The rows, some of which are read at a time. Raises MemAttnError without pyarrow."""
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise MemAttnError(f"{path}: Parquet needs the package pyarrow") from None
    for batch in ParquetFile(path).iter_batches(batch_size=64):
        yield from batch.to_pylist()


def read_records(paths: Sequence[Path], chosen: Choice) -> Iterator[Sentence]:
    """The rows, of which those with one id are a document; by default each is a line."""
    columns = {x: chosen.columns.get(x, x) for x in (*chosen.languages, DOCID)}
    for number, where, entry in objects(paths):
        if chosen.takes(entry, where, "rows"):
            document = text_of(value_at(entry, columns[DOCID], where), True, where, Counter())
            if not document.strip():
                raise MemAttnError(f"{where}: the id of the document is empty")
            texts = [text_at(entry, columns[name], where) for name in chosen.languages]
            for row in lines_of(texts, chosen.segments, chosen.counts):
                yield Sentence(row, document.strip(), number)


def text_at(entry: Entry, key: str, where: str) -> str:
    """A text with its line breaks. Raises MemAttnError for another value."""
    value = value_at(entry, key, where)
    text_of(value, False, f"{where}: {key!r}", Counter())
    return str(value)


def lines_of(
    texts: Sequence[str], segments: str, counts: Counter[str]
) -> Iterator[tuple[str, ...]]:
    """A row's lines: its paragraphs, or itself if the languages have unequal numbers of them."""
    columns = [paragraphs(text) if segments == SEGMENTS[1] else [text] for text in texts]
    if len(set(map(len, columns))) > 1:
        counts["documents with unequal numbers of paragraphs, which became one line each"] += 1
        columns = [[" ".join(column)] for column in columns]
    for row in zip(*columns, strict=True):
        yield tuple(text_of(text.strip("\n\r"), False, "", counts) for text in row)


def paragraphs(text: str) -> list[str]:
    """What blank lines separate, or the content of <p> elements, as in WMT26."""
    parts = re.split(r"\n\s*\n", text)
    if text.lstrip().startswith("<p>"):
        parts = [html.unescape(part) for part in re.findall("<p>(.*?)(?:</p>|$)", text, re.S)]
    return [part for part in parts if part.strip()]


def read_wmt24pp(paths: Sequence[Path], chosen: Choice) -> Iterator[Sentence]:
    """Segments with their post-edited translation; without those that are marked as bad."""
    languages = chosen.languages
    columns = dict(zip(languages, ("source", "target"), strict=False)) | {DOCID: "document_id"}
    rules = ["is_bad_source=false", "domain!=canary", f"lp={'-'.join(languages)}"]
    where = [*map(condition, rules[: len(languages) + 1]), *chosen.where]
    yield from read_records(paths, replace(chosen, columns=columns, where=where))


def read_wmt(paths: Sequence[Path], chosen: Choice) -> Iterator[Sentence]:
    """The documents of WMT25 or WMT26 between two languages; by default each paragraph is a line.

    The reference is the first of `refs`. Documents of test suites, and of other pairs, are left
    out, and with two languages those without a reference.
    """
    width, counts = len(chosen.languages), chosen.counts
    for number, where, entry in objects(paths):
        document = text_at(entry, "doc_id", where)
        pair = [value_at(entry, key, where) for key in ("src_lang", "tgt_lang")]
        reference = next(iter((entry.get("refs") or {}).values()), "")
        if isinstance(reference, Mapping):
            reference = text_at(reference, "ref", where)
        if pair[:width] != [*chosen.languages]:
            counts["documents of other pairs of languages left out"] += 1
        elif not chosen.test_suites and of_test_suite(entry, document):
            counts["documents of test suites left out; --test-suites reads them"] += 1
        elif width > 1 and not reference:
            counts["documents without a reference left out"] += 1
        elif chosen.takes(entry, where, "documents"):
            texts = [text_at(entry, "src_text", where), reference]
            rows = lines_of(texts[:width], chosen.segments or SEGMENTS[1], counts)
            for place, row in enumerate(rows):
                yield Sentence(row, document, number, begins=place == 0)


def of_test_suite(entry: Entry, document: str) -> bool:
    """Whether a document is outside of the general task: its collection, or the set in its id."""
    if "collection_id" in entry:
        return bool(entry["collection_id"] != "general")
    return "_###_" in document and not re.match("WMT[0-9]+_###_", document)


def write_hypotheses(
    sentences: Iterable[Sentence], files: Sequence[TextIO], languages: Sequence[str]
) -> str:
    """A translation as WMT takes it: an object with doc_id and hypothesis for each document."""
    for document, lines in by_document(sentences):
        entry = {"doc_id": document, "hypothesis": "\n\n".join(line.texts[-1] for line in lines)}
        files[0].write(json.dumps(entry, ensure_ascii=False) + "\n")
    return f"of the languages, {languages[-1]} is written" if len(languages) > 1 else ""


def read_dochplt(paths: Sequence[Path], chosen: Choice) -> Iterator[Sentence]:
    """The linked sentences of document pairs, which are numbered from 1.

    A link of several sentences is one line. Conditions are for links, such as bicleaner-score>=0.5.
    """
    pair = "-".join(chosen.languages)
    for document, (number, where, entry) in enumerate(objects(paths), start=1):
        found, sides = value_at(entry, "lang_pair", where), ["src", "tgt"]
        if found != pair:
            sides.reverse()
            if found != "-".join(reversed(chosen.languages)):
                raise MemAttnError(f"{where}: the pair is {found}; --langs must be its languages")
        texts = []
        for side in sides:
            ids, lines = (value_at(entry, f"{side}_doc.{x}", where) for x in ("ids", "sentences"))
            texts.append(dict(zip(ids, lines, strict=True)))
        for link in value_at(entry, "alignment", where):
            linked = zip(texts, [link[side] for side in sides], strict=True)
            row = tuple(" ".join(" ".join(text[x] for x in ids).split()) for text, ids in linked)
            if not all(row):
                chosen.counts["links without a sentence on one side left out"] += 1
            elif chosen.takes(link, where, "links"):
                yield Sentence(row, str(document), number)


# The columns of ParaDocs' files, and the rules by which its script breaks documents.
PARADOCS = (
    "src tgt similarity_one similarity_two collection src_paragraph_id tgt_paragraph_id "
    "src_sentence_id tgt_sentence_id src_start_index src_end_index tgt_start_index tgt_end_index "
    "src_language_id tgt_language_id frequency src_docid tgt_docid"
).split()
RULES = ("frequency<=100", "src_language_id>=0.5", "tgt_language_id>=0.5")
GAP = 2  # characters between consecutive sentences


def read_paradocs(paths: Sequence[Path], chosen: Choice) -> Iterator[Sentence]:
    """Documents of at least two consecutive sentences, numbered from 1.

    A document ends, as in the script, before a sentence without text or a place in its document,
    that does not follow the one before in the source, or that breaks a rule. A condition of the
    user takes the place of the rule with its key and sign.
    """
    rules = {one[:2]: one for one in (*map(condition, RULES), *chosen.where)}
    parts = _parts(paths, replace(chosen, where=[*rules.values()]))
    documents = 0
    for _, part in groupby(parts, lambda pair: pair[0]):
        sentences = [sentence for _, sentence in part]
        if len(sentences) == 1:
            chosen.counts["documents of one sentence left out"] += 1
            continue
        documents += 1
        for sentence in sentences:
            yield sentence._replace(document=str(documents))


def _parts(paths: Sequence[Path], chosen: Choice) -> Iterator[tuple[int, Sentence]]:
    """The sentences of ParaDocs with the number of their part of a document."""
    part, before = 0, None
    for path in paths:
        lines = progress(read_lines(path), path.name, path)
        for number, line in enumerate(lines, start=1):
            where, fields = f"{path}, line {number}", [text.strip() for text in line.split("\t")]
            if len(fields) != len(PARADOCS):
                raise MemAttnError(f"{where}: must have {len(PARADOCS)} fields, not {len(fields)}")
            row = dict(zip(PARADOCS, fields, strict=True))
            placed = row["src"] and row["tgt"] and "None" not in fields[5:13]
            if not placed:
                chosen.counts["sentences without text or place left out"] += 1
            if not placed or not chosen.takes(row, where, "sentences"):
                before = None
                continue
            start, document = int(row["src_start_index"]), fields[-2:]
            if before is None or before[0] != document or start - before[1] > GAP:
                part += 1
            before = document, int(row["src_end_index"])
            yield part, Sentence((row["src"], row["tgt"]), "", number)


TAG = re.compile("</?(BOOK|CHAPTER)\\b[^>]*>")
ID = re.compile('id="([^"]*)"')


def read_guofeng(paths: Sequence[Path]) -> Iterator[Sentence]:
    """Line-aligned chapters, each of which is a document with the id BOOK/CHAPTER.

    Raises MemAttnError where only one language has a tag, and for text outside of a chapter.
    """
    ids = {"BOOK": "", "CHAPTER": ""}
    for number, row in enumerate(raw_pairs(paths, Counter()), start=1):
        tags = [mark for text in row if (mark := TAG.fullmatch(text))]
        if tags and len(tags) < len(row):
            raise MemAttnError(f"{paths[0]}, line {number}: a tag, or none, unlike {paths[-1]}")
        if tags:
            found = ID.search(row[0])
            ids[tags[0][1]] = found[1] if found else ""
        elif ids["CHAPTER"]:
            yield Sentence(row, "/".join(ids.values()), number)
        elif any(row):
            raise MemAttnError(f"{paths[0]}, line {number}: text outside of a <CHAPTER id=...>")


def read_wmt_xml(paths: Sequence[Path], chosen: Choice) -> Iterator[Sentence]:
    """WMT's XML from 2021 to 2024, without its test suites unless they are chosen."""
    for path in paths:
        yield from read_sgm(path, chosen.languages, {}, chosen.counts, chosen.test_suites)
