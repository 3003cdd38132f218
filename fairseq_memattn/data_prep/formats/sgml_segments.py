"""The segments of test sets in NIST's format (.sgm) and WIT3's version of it (.xml)."""

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairseq_memattn.data_prep.text.aligned import Sentence
from fairseq_memattn.data_prep.text.lines import raw_lines
from fairseq_memattn.errors import MemAttnError

MARK = re.compile(
    r"<doc\b[^>]*\bdocid\s*=\s*[\"']([^\"']*)[\"'][^>]*>|<seg\b[^>]*>(.*?)</seg>", re.I | re.S
)
# A document, one side of it, or a segment of that side, in the XML of WMT from 2021 on.
XML_MARK = re.compile(
    r"<doc\b[^>]*?\b(?:doc)?id\s*=\s*[\"']([^\"']*)[\"'][^>]*>|<(src|ref|hyp)\b([^>]*)>"
    r"|<seg\b([^>]*)>(.*?)</seg>",
    re.I | re.S,
)
SIDE = re.compile(r"<(src|ref)\b", re.I)
ATTRIBUTE = re.compile(r"([\w:]+)\s*=\s*[\"']([^\"']*)[\"']")
BEGIN = re.compile(r"<seg\b", re.I)
TEST_SUITE = "testsuite"  # the attribute of documents that sacreBLEU leaves out
WHITE_SPACE = "texts with other white space than single spaces, which became single spaces"
ENTITY = re.compile("&(amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});")  # a lone & is allowed


def read_segments(path: Path, counts: Counter[str]) -> Iterator[Sentence]:
    """The segments of a file, with entities resolved; text outside of <seg> is ignored.

    sacreBLEU's reader is not used, because it requires every <seg> to begin a line and to end on
    it, does not resolve entities, and skips unexpected text.

    Raises MemAttnError, with the line, for a segment outside of a document or without an end, and
    for a file without segments.
    """
    text = "\n".join(raw_lines(path, counts))
    document = None
    begins = True
    found = before = 0
    line = 1
    for mark in MARK.finditer(text):
        line += text.count("\n", before, mark.start())
        before = mark.start()
        if mark[2] is None:
            document, begins = " ".join(mark[1].split()), True
            if not document:
                raise MemAttnError(f"{path}, line {line}: the id of the document is empty")
            continue
        if document is None:
            raise MemAttnError(f"{path}, line {line}: a <seg> outside of a <doc docid=...>")
        if BEGIN.search(mark[2]):
            raise MemAttnError(f"{path}, line {line}: a <seg> without </seg>")
        found += 1
        yield Sentence((_content(mark[2], counts),), document, line, begins)
        begins = False
    if found < len(BEGIN.findall(text)):
        raise MemAttnError(f"{path}: the last <seg> has no </seg>")
    if not found:
        raise MemAttnError(f"{path}: no <seg>")


def has_sides(path: Path) -> bool:
    """Whether a file has <src> or <ref>, as the XML of WMT and unlike NIST's format."""
    return any(SIDE.search(line) for line in raw_lines(path, Counter()))


def read_parallel(
    path: Path, languages: Sequence[str], counts: Counter[str], test_suites: bool = False
) -> Iterator[Sentence]:
    """The segments of one or two languages from one XML file, as WMT publishes them from 2021 on.

    The first <src> or <ref> of a document in a language is its text; other references and system
    outputs are left out and counted, and so are documents of test suites, as by sacreBLEU, unless
    `test_suites` is set. What the other language does not have is empty there.

    Raises MemAttnError, with the line, for a segment without an end or outside of a document, and
    for one that the first language does not have; and for a file without text in a language.
    """
    text = "\n".join(raw_lines(path, counts))
    missing = set(languages)
    for document, line, part in _documents(path, text, counts, test_suites):
        sides = _sides(path, part, line, counts)
        missing -= sides.keys()
        source, target = (sides.get(language, {}) for language in (languages[0], languages[-1]))
        for number, (_, at) in target.items():
            if source and number not in source:
                raise MemAttnError(
                    f"{path}, line {at}: segment {number!r} of document {document!r} is not in the "
                    f"language {languages[0]}"
                )
        for place, (number, (_, at)) in enumerate((source or target).items()):
            texts = tuple(side.get(number, ("", at))[0] for side in (source, target))
            yield Sentence(texts[: len(languages)], document, at, begins=place == 0)
    if missing:
        raise MemAttnError(
            f"{path}: no document has <src> or <ref> with the language {min(missing)}"
        )


def _documents(
    path: Path, text: str, counts: Counter[str], test_suites: bool
) -> Iterator[tuple[str, int, str]]:
    marks = [mark for mark in XML_MARK.finditer(text) if mark[1] is not None]
    outside = XML_MARK.search(text, 0, marks[0].start() if marks else len(text))
    if outside:
        line = text.count("\n", 0, outside.start()) + 1
        raise MemAttnError(f"{path}, line {line}: a segment or side outside of a <doc id=...>")
    if not marks:
        raise MemAttnError(f"{path}: no <doc id=...>")
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    line, before = 1, 0
    for mark, end in zip(marks, ends, strict=True):
        line += text.count("\n", before, mark.start())
        before = mark.start()
        document = " ".join(mark[1].split())
        if not document:
            raise MemAttnError(f"{path}, line {line}: the id of the document is empty")
        if not test_suites and TEST_SUITE in dict(ATTRIBUTE.findall(mark[0])):
            counts["documents of test suites, which sacreBLEU leaves out as well"] += 1
            continue
        yield document, line, text[before:end]


def _sides(
    path: Path, part: str, line: int, counts: Counter[str]
) -> dict[str, dict[str, tuple[str, int]]]:
    """The text and line of each segment of a document, by language and number of the segment."""
    sides: dict[str, dict[str, tuple[str, int]]] = {}
    side: dict[str, tuple[str, int]] | None = None
    noted = counts  # of sides that are read
    before = found = 0
    for mark in XML_MARK.finditer(part):
        line += part.count("\n", before, mark.start())
        before = mark.start()
        if mark[2]:
            language = dict(ATTRIBUTE.findall(mark[3])).get("lang", "")
            side, noted = {}, Counter()
            if mark[2].lower() == "hyp" or language in sides:
                counts["other references and system outputs of documents, left out"] += 1
            else:
                sides[language], noted = side, counts
        elif mark[5] is not None:
            found += 1
            number = dict(ATTRIBUTE.findall(mark[4])).get("id", "")
            if side is None or BEGIN.search(mark[5]) or number in side:
                what = "outside of <src>, <ref> and <hyp>" if side is None else "without </seg>"
                what = f"with the id {number!r} again" if side and number in side else what
                raise MemAttnError(f"{path}, line {line}: a <seg> {what}")
            side[number] = (_content(mark[5], noted), line)
    if found < len(BEGIN.findall(part)):
        raise MemAttnError(f"{path}, line {line}: the last <seg> of this document has no </seg>")
    return sides


def _content(text: str, counts: Counter[str]) -> str:
    given = ENTITY.sub(lambda entity: html.unescape(entity[0]), text).strip()
    content = " ".join(given.split())
    if content != given:
        counts[WHITE_SPACE] += 1
    return content


def read_segment_rows(paths: Sequence[Path], counts: Counter[str]) -> Iterator[Sentence]:
    """The segments of one file a language.

    Raises MemAttnError where the files differ in the numbers or documents of their segments.
    """
    sides = [list(read_segments(path, counts)) for path in paths]
    for one, *others in zip(*sides, strict=False):
        for other, path in zip(others, paths[1:], strict=True):
            if one.document != other.document:
                raise MemAttnError(
                    f"{paths[0]}, line {one.line}: document {one.document}, but {path}, line "
                    f"{other.line}, has document {other.document}"
                )
        yield one._replace(texts=sum((other.texts for other in others), one.texts))
    if len({len(side) for side in sides}) > 1:
        numbers = ", ".join(f"{p} has {len(s)}" for p, s in zip(paths, sides, strict=True))
        raise MemAttnError(f"the files must have the same number of segments: {numbers}")
