"""Files as the publishers of corpora and test sets release them, read to lines and ids."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fairseq_memattn.data_prep.commands import prepare
from fairseq_memattn.errors import MemAttnError

Entry = dict[str, Any]
Capture = pytest.CaptureFixture[str]


def write(path: Path, *entries: Entry) -> Path:
    data = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read(path: Path, form: str, *options: str, langs: str = "en de") -> list[str]:
    """The lines of all files, the ids last, joined by |."""
    output = str(path.with_name("out"))
    command = f"from {form} --force --input {path} --output {output} --langs {langs}"
    prepare("documents", [*command.split(), *options])
    files = [Path(f"{output}.{suffix}") for suffix in (*langs.split(), "docid")]
    columns = [file.read_text().splitlines() for file in files]
    return ["|".join(row) for row in zip(*columns, strict=True)]


def segment(number: int, document: str, **others: Any) -> Entry:
    about = {"lp": "en-de", "domain": "news", "document_id": document, "is_bad_source": False}
    return about | {"source": f"En {number}", "target": f"De {number}", "segment_id": 1} | others


def test_wmt24pp(tmp_path: Path, capsys: Capture) -> None:
    bad = segment(2, "a", is_bad_source=True)
    entries = [segment(0, "canary", domain="canary"), segment(1, "a"), bad, segment(3, "b")]
    path = write(tmp_path / "en-de.jsonl", *entries, segment(4, "b", lp="en-it"))
    assert read(path, "wmt24pp") == ["En 1|De 1|a", "En 3|De 3|b"]
    assert "note: 1 rows without is_bad_source=false left out" in capsys.readouterr().out
    assert read(path, "wmt24pp", "--where", "document_id=b") == ["En 3|De 3|b"]
    columns = ["--columns", "en=source", "de=target", "docid=document_id"]
    assert len(read(path, "jsonl", *columns)) == 5


def document(name: str, reference: object = "Eins.\n\nZwei.", **others: Any) -> Entry:
    text = {"src_text": "One\none.\n\nTwo.", "refs": {"refA": {"ref": reference}}}
    return {"doc_id": name, "src_lang": "en", "tgt_lang": "de", "prompt_instruction": "?"} | (
        text | {"collection_id": "general"} | others
    )


def test_wmt25(tmp_path: Path, capsys: Capture) -> None:
    others = [document("blind", refs={}), document("suite", collection_id="gender")]
    italian = document("italian", tgt_lang="it")
    path = write(tmp_path / "t.jsonl", document("a"), document("b", "Kurz."), *others, italian)
    uneven = "One one. Two.|Kurz.|b"
    assert read(path, "wmt") == ["One one.|Eins.|a", "Two.|Zwei.|a", uneven]
    told = capsys.readouterr().out
    for note in ("without a reference", "of test suites", "unequal numbers", "of other pairs"):
        assert f"note: 1 documents {note}" in told.replace("with unequal", "unequal")
    assert len(read(path, "wmt", "--test-suites")) == 5
    assert read(path, "wmt", "--segments", "rows") == ["One one. Two.|Eins. Zwei.|a", uneven]
    assert len(read(path, "wmt", "--where", "tgt_lang=it", langs="en")) == 2


def test_wmt26_and_the_way_back(tmp_path: Path) -> None:
    """Ids with ###, paragraphs as elements, and a reference that is text."""
    name = "WMT26_###_news_###_abc.1"
    entry = document(name, src_text="<p>A &amp; B</p>\n<p>C</p>", refs={"refA": "<p>D</p>\n<p>E"})
    suite = document("Suite_###_x_###_1")
    for one in (entry, suite):
        del one["collection_id"]
    assert read(write(tmp_path / "t.jsonl", entry, suite), "wmt") == [
        f"A & B|D|{name}",
        f"C|E|{name}",
    ]
    command = f"to wmt --input {tmp_path}/out --langs de --output {tmp_path}/system"
    prepare("documents", command.split())
    written = json.loads((tmp_path / "system.jsonl").read_text())
    assert written == {"doc_id": name, "hypothesis": "D\n\nE"}


def test_dochplt_in_several_files(tmp_path: Path) -> None:
    source = {"ids": ["s1", "s2", "s3"], "sentences": ["A.", "B.", "C."]}
    target = {"ids": ["t1", "t2", "t3"], "sentences": ["D.", "E.", "F."]}
    links = [(["s1"], ["t1", "t2"], 0.8), (["s2"], [], 0.8), (["s3"], ["t3"], 0.1)]
    alignment = [{"src": a, "tgt": b, "bicleaner-score": score} for a, b, score in links]
    entry = {"lang_pair": "en-xh", "src_doc": source, "tgt_doc": target, "alignment": alignment}
    for number in range(2):
        write(tmp_path / f"part{number}.jsonl.gz", entry)
    parts = tmp_path / "part*.jsonl.gz"
    both = ["A.|D. E.|1", "C.|F.|1", "A.|D. E.|2", "C.|F.|2"]
    assert read(parts, "dochplt", langs="en xh") == both
    clean = read(parts, "dochplt", "--where", "bicleaner-score>=0.5", langs="xh en")
    assert clean == ["D. E.|A.|1", "D. E.|A.|2"]


def test_paradocs(tmp_path: Path, capsys: Capture) -> None:
    """A gap, another document, a frequent sentence, another language, and no place end one."""

    def row(text: str, start: int, name: str, frequency: int = 1, lid: float = 1) -> str:
        places = ["p", "p", "1", "1", *[str(start), str(start + 5)] * 2]
        fields = [text, text.lower(), "1", "1", "wide", *places, lid, "1", frequency, name, name]
        return "\t".join(map(str, fields)) + "\n"

    first = [row("A", 0, "d"), row("B", 6, "d"), row("Far", 60, "d"), row("C", 0, "e")]
    second = [row("D", 6, "e", frequency=101), row("E", 12, "e"), row("F", 18, "e")]
    third = [row("G", 24, "e", lid=0.4), row("H", 0, "f").replace("p\tp", "None\tp")]
    path = tmp_path / "000.gz"
    path.write_bytes(gzip.compress("".join(first + second + third).encode()))
    assert read(path, "paradocs") == ["A|a|1", "B|b|1", "E|e|2", "F|f|2"]
    assert "note: 2 documents of one sentence left out" in capsys.readouterr().out
    assert len(read(path, "paradocs", "--where", "frequency<=200")) == 6


def test_guofeng(tmp_path: Path) -> None:
    chapters = '<CHAPTER id="b_01">\n{}\n{}\n</CHAPTER>\n<CHAPTER id="b_02">\n{}\n</CHAPTER>\n'
    book = f'<BOOK id="1-b">\n{chapters}</BOOK>\n'
    (tmp_path / "train.zh").write_text(book.format("甲", "乙", "丙"))
    (tmp_path / "train.en").write_text(book.format("A", "", "C"))
    lines = read(tmp_path / "train", "guofeng", "--drop-empty", langs="zh en")
    assert lines == ["甲|A|1-b/b_01", "丙|C|1-b/b_02"]
    (tmp_path / "train.en").write_text("text\n" * 9)
    with pytest.raises(MemAttnError, match="line 1: a tag, or none, unlike"):
        read(tmp_path / "train", "guofeng", langs="zh en")


def test_wmt_xml(tmp_path: Path) -> None:
    sides = '<src lang="en"><seg id="1">A</seg></src><ref lang="de"><seg id="1">B</seg></ref>'
    path = tmp_path / "wmttest2023.xml"
    path.write_text(f'<doc id="n">{sides}</doc><doc id="t" testsuite="x">{sides}</doc>')
    assert read(path, "wmt-xml") == ["A|B|n"]
    assert read(path, "wmt-xml", "--test-suites") == ["A|B|n", "A|B|t"]


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        ("jsonl", "", "line 1: has no key 'docid'"),
        ("wmt", "", "line 1: has no key 'doc_id'"),
        ("dochplt", "", "the pair is en-xh"),
        ("wmt24pp", "--where source>=1", "'source' must be a number"),
        ("wmt24pp", "--test-suites", "--test-suites requires the format wmt or wmt-xml"),
    ],
)
def test_mistakes(form: str, options: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "file.jsonl", segment(1, "a", lang_pair="en-xh"))
    with pytest.raises(MemAttnError, match=message):
        read(path, form, *options.split())
