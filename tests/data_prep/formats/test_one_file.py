"""A user's own text in one file a split: tables, JSON lines, SGM and XML documents."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from official_archives import lines, message, nist_set
from preparing import prepare
from sacrebleu.dataset.wmt_xml import WMTXMLDataset

from fairseq_memattn.data_prep.commands import own_corpus
from fairseq_memattn.data_prep.formats.one_file import READERS, find_columns, find_files
from fairseq_memattn.data_prep.pipeline.binarise import check_languages
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.evaluation.text_columns import read_column

pytestmark = pytest.mark.usefixtures("no_binarising")

TEXT = [
    (f"The {noun} is {size} & \u201cfine\u201d.", f"Le {noun} est {size}, 2 < 3.", document)
    for document, noun in (("a", "house"), ("b", "garden"))
    for size in ("old", "new", "big")
]
XML = """\
<?xml version="1.0" encoding="UTF-8"?>
<dataset id="test"><collection id="general">
{}</collection></dataset>
"""


def xml_side(tag: str, side: int, document: str) -> str:
    """A side of a document with its segments, one a line."""
    texts = [row[side].replace("&", "&amp;").replace("<", "&lt;") for row in TEXT]
    texts = [text for text, row in zip(texts, TEXT, strict=True) if row[2] == document]
    segments = "".join(f'<seg id="{n}">{text}</seg>\n' for n, text in enumerate(texts, start=1))
    return f"<{tag}><p>\n{segments}</p></{tag.split()[0]}>\n"


def xml_file() -> str:
    """Two documents in WMT's XML, each with a source, two references and a system output."""
    documents = ""
    for document in ("a", "b"):
        sides = xml_side('src lang="en"', 0, document)
        sides += xml_side('ref lang="fr" translator="A"', 1, document)
        sides += xml_side('ref lang="fr" translator="B"', 0, document)
        sides += xml_side('hyp lang="fr" system="X"', 0, document)
        documents += f'<doc id="{document}" origlang="en">\n{sides}</doc>\n'
    return XML.format(documents)


def run(folder: Path, kind: str, *options: str, langs: str = "en fr", file: str = "all") -> int:
    text = f"train={folder / file} valid={folder / file}"
    if ":" in file:
        text = text.replace(":", f":{folder}/")
    argv = f"--format {kind} --text {text} --langs {langs} --output {folder / 'out'}"
    return prepare(own_corpus, [*argv.split(), "--vocab-size", "34", *options])


def check(folder: Path, documents: bool = True) -> None:
    """The text and the document ids of both splits."""
    for split in ("train", "valid"):
        for side, suffix in enumerate(["en", "fr", "docid"][: 2 + documents]):
            assert lines(folder / f"out/text/{split}.{suffix}") == [row[side] for row in TEXT]
    assert (folder / "out/pieces/valid.docid").exists() == documents


def test_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{document}\tx\t{fr}\t{en}\n" for en, fr, document in TEXT]
    (tmp_path / "all").write_text("".join(rows), encoding="utf-8")
    columns = ["--columns", "docid=1", "fr=3"]
    assert run(tmp_path, "tsv", *columns, "en=4") == 0
    check(tmp_path)
    assert "text-train: 6 pairs, 2 documents\n" in capsys.readouterr().out
    assert run(tmp_path, "tsv", *columns, "en=2") == 1
    told = message(capsys.readouterr().err)
    assert "was made from other input or options (see" in told


def test_a_table_with_a_header(tmp_path: Path) -> None:
    rows = ["french\tenglish\n", *(f"{fr}\t{en}\n" for en, fr, _ in TEXT)]
    (tmp_path / "all").write_text("".join(rows), encoding="utf-8")
    assert run(tmp_path, "tsv", "--columns", "en=english", "fr=french") == 0
    check(tmp_path, documents=False)


def test_json_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = [{"id": row[2], "en": row[0].replace(" ", "\n", 1), "t": row[1]} for row in TEXT]
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    (tmp_path / "all").write_text(text, encoding="utf-8")
    assert run(tmp_path, "jsonl", "--columns", "en=en", "fr=t", "docid=id") == 0
    check(tmp_path)
    assert "6 texts with line breaks, which became spaces" in capsys.readouterr().out


def test_xml_is_what_sacrebleu_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "all").write_text(xml_file(), encoding="utf-8")
    fields = WMTXMLDataset._unwrap_wmt21_or_later(str(tmp_path / "all"))
    assert [*zip(fields["src"], fields["ref:A"], fields["docid"], strict=True)] == TEXT
    assert run(tmp_path, "sgm") == 0
    check(tmp_path)
    assert "4 other references and system outputs of documents, left" in capsys.readouterr().out


def test_xml_with_test_suites_and_without_references(tmp_path, capsys):
    """sacreBLEU reads neither a document of a test suite nor one without a reference."""
    alone = xml_side('src lang="en"', 0, "a").replace("house is", "house\u00a0 is")
    more = f'<doc id="c" origlang="en">\n{alone}</doc>\n'
    more += more.replace('id="c"', 'id="t" testsuite="names"')
    text = xml_file().replace("house is", "house\u00a0 is").replace("</coll", f"{more}</coll")
    (tmp_path / "all").write_text(text, encoding="utf-8")
    fields = WMTXMLDataset._unwrap_wmt21_or_later(str(tmp_path / "all"))
    assert fields["docid"] == [row[2] for row in TEXT]
    assert run(tmp_path, "sgm") == 1
    assert "the line is empty; --drop-empty leaves" in message(capsys.readouterr().err)
    assert run(tmp_path, "sgm", "--drop-empty") == 0
    check(tmp_path)
    told = capsys.readouterr().out
    assert "3 lines without text in some language dropped" in told
    assert "1 documents of test suites, which sacreBLEU leaves out as well" in told
    assert "6 texts with other white space than single spaces, which became" in told


def test_blank_rows_between_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{en}\t{fr}\n" for en, fr, _ in TEXT]
    rows[3:3] = ["\t\n"]
    for blank in ("\t\n", "\n"):
        (tmp_path / "all").write_text("".join([*rows[:3], blank, *rows[4:]]), encoding="utf-8")
        assert run(tmp_path, "tsv", "--blank-lines", "--force") == 0
        assert lines(tmp_path / "out/text/train.docid") == ["1", "1", "1", "2", "2", "2"]
    assert run(tmp_path, "tsv", "--force") == 1
    assert "line 4: the line is empty; --drop-empty" in message(capsys.readouterr().err)
    assert run(tmp_path, "tsv", "--force", "--drop-empty") == 0
    assert "1 blank lines dropped (with --blank-lines, they sep" in capsys.readouterr().out
    (tmp_path / "all").write_text("docid\ten\tfr\n" + "".join(f"a\t{row}" for row in rows))
    assert run(tmp_path, "tsv", "--force", "--blank-lines") == 1
    assert "--blank-lines is for text without document ids" in message(capsys.readouterr().err)


def test_json_lines_of_datasets(tmp_path: Path) -> None:
    entries = [{"docid": row[2], "translation": {"en": row[0], "fr": row[1]}} for row in TEXT]
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    (tmp_path / "all").write_text(text, encoding="utf-8")
    assert run(tmp_path, "jsonl") == 0
    check(tmp_path)
    (tmp_path / "all").rename(tmp_path / "all.jsonl")
    assert read_column(tmp_path / "all.jsonl:fr", "text") == [row[1] for row in TEXT]


def test_training_text_of_wit3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, language in enumerate(("en", "fr")):
        content = (
            "".join(
                f"<url>http://x/{document}</url>\n<talkid>{document}</talkid>\n<title>T</title>\n"
                + "".join(f"{row[side]}\n" for row in TEXT if row[2] == document)
                for document in ("a", "b")
            )
            .replace("talkid>a", "talkid>1")
            .replace("talkid>b", "talkid>2")
        )
        (tmp_path / f"all.{language}").write_text(content, encoding="utf-8")
    assert run(tmp_path, "lines") == 1
    told = message(capsys.readouterr().err)
    assert "all.en, line 2: '<talkid>1</talkid>' is mark-up; --format sgm reads such" in told
    assert run(tmp_path, "sgm", file="all.en:all.fr") == 0
    assert lines(tmp_path / "out/text/train.fr") == [row[1] for row in TEXT]
    assert lines(tmp_path / "out/text/train.docid") == 3 * ["1"] + 3 * ["2"]


def test_sgm_files(tmp_path: Path) -> None:
    for side, (kind, name) in enumerate((("srcset", "src"), ("refset", "ref"))):
        documents = {d: [row[side] for row in TEXT if row[2] == d] for d in ("a", "b")}
        (tmp_path / name).write_text(nist_set(kind, documents), encoding="utf-8")
    assert run(tmp_path, "sgm", file="src:ref") == 0
    check(tmp_path)


def test_ids_of_sgm_files_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = nist_set("srcset", {"a": [row[0] for row in TEXT]})
    (tmp_path / "src").write_text(text.replace('docid="a"', 'docid=" a\nb "'), encoding="utf-8")
    assert run(tmp_path, "sgm", "--vocab-size", "27", file="src", langs="en") == 0
    assert lines(tmp_path / "out/text/train.docid") == len(TEXT) * ["a b"]
    (tmp_path / "src").write_text(text.replace('docid="a"', 'docid=" "'), encoding="utf-8")
    assert run(tmp_path, "sgm", "--force", file="src", langs="en") == 1
    assert "the id of the document is empty" in message(capsys.readouterr().err)


@pytest.mark.parametrize("file", ["all", "src:ref"])
def test_an_id_that_is_repeated_at_once(file, tmp_path, capsys):
    """A <doc> begins a document, also after one with the same id."""
    (tmp_path / "all").write_text(xml_file().replace('id="b"', 'id="a"'), encoding="utf-8")
    for side, (kind, name) in enumerate((("srcset", "src"), ("refset", "ref"))):
        documents = {d: [row[side] for row in TEXT if row[2] == d] for d in ("a", "b")}
        text = nist_set(kind, documents).replace('docid="b"', 'docid="a"')
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert run(tmp_path, "sgm", file=file) == 1
    assert "document id 'a' began at line" in message(capsys.readouterr().err)
    assert run(tmp_path, "sgm", "--unique-ids", file=file) == 0
    assert lines(tmp_path / "out/text/train.docid") == 3 * ["a"] + 3 * ["a.2"]


def test_empty_lines_and_repeated_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{row[2]}\t{row[0]}\t{row[1]}" for row in [*TEXT, *TEXT]]
    rows[1:1] = ["a\t \tx", "a\tx\t"]
    (tmp_path / "all").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    options = ["--columns", "docid=1", "en=2", "fr=3"]
    assert run(tmp_path, "tsv", *options) == 1
    assert "all, line 2: the line is empty" in message(capsys.readouterr().err)
    assert run(tmp_path, "tsv", *options, "--drop-empty") == 1
    told = message(capsys.readouterr().err)
    assert "all, line 9: document id 'a' began at line 1 and had already ended" in told
    assert run(tmp_path, "tsv", *options, "--drop-empty", "--unique-ids") == 0
    told = capsys.readouterr().out
    for count in (
        "12 pairs, 4 documents, 2 lines without text in some language dropped",
        "2 document ids that occurred before, made unique",
    ):
        assert count in told
    ids = [name for name in ("a", "b", "a.2", "b.2") for _ in range(3)]
    assert lines(tmp_path / "out/text/train.docid") == ids


GOOD = xml_file()
MISTAKES = [
    ("tsv", "a\tb\na\n", "", "all, line 2: must have at least 2 fields, which tabs separate, but"),
    ("tsv", "a\tb\t \n\n", "en=1 fr=2 docid=3", "all, line 1: the id of the document is empty"),
    ("jsonl", '{"en": "a", "fr": "b"}\n{\n', "", "all, line 2: not JSON"),
    (
        "jsonl",
        '{"en": "a", "fr": "b"}\n{"en": "a", "fr": "b", "docid": 1}\n',
        "",
        "has a docid, but",
    ),
    ("jsonl", '{"en": "a", "fr": "b"}\n{"en": "a", "x": "b"}\n', "", "all, line 2: has no key 'fr"),
    ("jsonl", '{"en": "a", "fr": "\\ud800"}\n', "", "line 1: 'fr' contains half of a surrogate"),
    ("sgm", GOOD.replace('"fr"', '"de"'), "", "all: no document has <src> or <ref> with the"),
    ("sgm", GOOD.replace('id="2"', 'id="1"', 1), "", "all, line 6: a <seg> with the id '1' again"),
    ("sgm", GOOD.replace('id="1"', 'id="9"', 1), "", "segment '1' of document 'a' is not in the"),
    ("sgm", GOOD.replace('<src lang="en">', "", 1), "", "line 5: a <seg> outside of <src>, <ref>"),
]


def test_mistakes(tmp_path: Path) -> None:
    path, languages = tmp_path / "all", ["en", "fr"]
    for kind, content, columns, expected in MISTAKES:
        path.write_text(content, encoding="utf-8")
        given = [tuple(one.split("=")) for one in columns.split()]
        with pytest.raises(MemAttnError, match=re.escape(expected)):
            found = find_columns(kind, given, languages, [path])
            list(READERS[kind](path, languages, found, Counter()))


def test_files_that_cannot_be(tmp_path: Path) -> None:
    for paths in (tmp_path / "gone", Path("a:a:a")):
        with pytest.raises(MemAttnError, match="no such file|must be one file, or one for each"):
            find_files({"train": paths}, "sgm", ["en", "fr"])
    for languages in (["en", "fr", "de"], ["en", "docid"]):
        with pytest.raises(MemAttnError, match="--langs must"):
            check_languages(languages)
