"""sacreBLEU's sets: the lines of sacreBLEU's own readers, from archives made here."""

import json
import shutil
from collections.abc import Callable, Mapping
from hashlib import md5
from pathlib import Path

import pytest
from official_archives import lines, message, nist_set, tree, write_tar, write_zip
from preparing import prepare
from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.base import Dataset
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset, WMTAdditionDataset
from sacrebleu.dataset.plain_text import PlainTextDataset
from sacrebleu.dataset.wmt_xml import WMTXMLDataset

from fairseq_memattn.data_prep.commands import sacrebleu
from fairseq_memattn.data_prep.formats import sacrebleu_sets

XML = "set-1/xml/tiny.en-de.all.xml"
DOCUMENTS = f"""<?xml version='1.0' encoding='utf-8'?>
<dataset id="tiny"><collection id="general">
<doc origlang="en" id="news_1" domain="news">
<src lang="en"><p><seg id="1">Tea &amp;  cake.</seg><seg id="2">Is it {"very " * 5}good?</seg></p>
<p><seg id="3">Nobody translates this.</seg></p></src>
<ref lang="de" translator="B"><p><seg id="1">Tee und Kuchen.</seg></p></ref>
<ref lang="de" translator="A"><p><seg id="1">Tee &amp; Kuchen.</seg>
<seg id="2">Ist er {"sehr " * 5}gut?</seg></p></ref>
<hyp system="ONLINE-X" language="de"><p><seg id="1">Tee.</seg><seg id="2">Gut?</seg>
<seg id="3">Niemand.</seg></p></hyp>
</doc>
<doc origlang="de" id="chat_7" domain="chat">
<src lang="en"><p><seg id="1">Yes, that is right.</seg></p></src>
<ref lang="de"><p><seg id="1">Ja, das ist richtig.</seg></p></ref>
<hyp system="ONLINE-X" language="de"><p><seg id="1">Ja, das ist so.</seg></p></hyp>
</doc>
<doc origlang="en" id="suite" testsuite="s"><src lang="en"><p><seg id="1">X</seg></p></src></doc>
</collection></dataset>
"""
SYSTEM = ["Tee.", "Gut?", "Ja, das ist so."]
GERMAN = ["Tee & Kuchen.", "Ist er sehr sehr sehr sehr sehr gut?", "Ja, das ist richtig."]
SGML: Mapping[str, str | bytes] = {
    "sgm/t-src.en.sgm": nist_set("srcset", {"a": ["One.", "Two."], "b": ["Three."]})
    + '<doc docid="a" genre="news" origlang="de">\n<seg id="1">Four.</seg>\n</doc>\n',
    "sgm/t-ref.de.sgm": nist_set("refset", {"a": ["Eins.", "Zwei."], "b": ["Drei."]})
    + '<doc docid="a">\n<seg id="1">Vier.</seg>\n</doc>\n',
}
Register = Callable[..., Dataset]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """sacreBLEU's folder, which the user's must not be."""
    monkeypatch.setattr(sacrebleu_sets, "SACREBLEU_DIR", str(tmp_path / "sacrebleu"))
    return tmp_path / "sacrebleu"


@pytest.fixture
def register(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Register:
    """Adds a set to the registry; its archives are at file: addresses."""

    def add(
        kind: type[Dataset], archives: list[Path], files: object, name: str = "tiny", **more: object
    ) -> Dataset:
        sums = [md5(path.read_bytes()).hexdigest() for path in archives]
        urls = [path.as_uri() for path in archives]
        made = kind(name, data=urls, md5=sums, langpairs={"en-de": files}, **more)
        made._outdir, made._rawdir = str(own_folder / name), str(own_folder / name / "raw")
        monkeypatch.setitem(DATASETS, name, made)
        return made

    return add


@pytest.fixture
def xml(tmp_path: Path, register: Register) -> Path:
    """The archive of a registered set in WMT's XML."""
    archive = write_tar(tmp_path / "v1.tar.gz", {XML: DOCUMENTS})
    register(WMTXMLDataset, [archive], [XML], refs=["A", ""])
    return archive


def run(output: Path, *options: object, name: str = "tiny") -> int:
    command = ["--set", name, "--langs", "en-de", "--output", output, *options]
    return prepare(sacrebleu, [str(word) for word in command])


def test_every_field_is_a_file(xml, tmp_path, own_folder, capsys):
    assert run(tmp_path / "out", "--archive", xml) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1] == "text-test: 3 lines, 2 documents, 2 segments that sacreBLEU leaves out"
    assert said[2] == "references with which sacreBLEU scores: ref:A, ref"
    assert "note: 1 of 3 lines of ref:A have no text" in said
    text = {path: lines(tmp_path / "out" / path) for path in tree(tmp_path / "out") if "." in path}
    text = {path: found for path, found in text.items() if path.endswith(("en", "de", "ocid"))}
    assert (
        text
        == {
            "text/test.en": ["Tea & cake.", f"Is it {'very ' * 5}good?", "Yes, that is right."],
            "text/test.de": GERMAN,  # the first of sacreBLEU's references that has text
            "text/test.docid": ["news_1", "news_1", "chat_7"],
            "references/ref-A.de": [*GERMAN[:2], ""],
            "references/ref-B.de": ["Tee und Kuchen.", "", ""],
            "references/ref-unnamed.de": ["", "", GERMAN[2]],
            "systems/ONLINE-X.de": SYSTEM,
        }
    )
    assert lines(tmp_path / "out/text/test.domain") == ["news", "news", "chat"]
    assert not own_folder.exists()
    before = tree(tmp_path / "out")
    assert run(tmp_path / "out", "--archive", xml) == 0  # done before
    assert tree(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("kind", "files", "ours"),
    [
        (
            WMTXMLDataset,
            {XML: DOCUMENTS},
            {
                **{"src": "text/test.en", "origlang": "text/test.origlang"},
                **{"domain": "text/test.domain", "ONLINE-X": "systems/ONLINE-X.de"},
                **{"ref:A": "references/ref-A.de", "ref:B": "references/ref-B.de"},
                **{"ref": "references/ref-unnamed.de", "docid": "text/test.docid"},
            },
        ),
        (
            FakeSGMLDataset,
            SGML,
            {
                **{"src": "text/test.en", "ref": "text/test.de", "genre": "text/test.genre"},
                **{"origlang": "text/test.origlang"},
            },
        ),
    ],
)
def test_the_lines_are_those_of_sacrebleu(kind, files, ours, tmp_path, register):
    """sacreBLEU unpacks its own copy of the archive, in its own folder."""
    archive = write_tar(tmp_path / "test.tgz", files)
    dataset = register(kind, [archive], [*files], refs=["A"])
    assert run(tmp_path / "out", "--archive", archive) == 0
    theirs = dict(zip(dataset.fieldnames("en-de"), dataset.get_files("en-de"), strict=True))
    assert theirs.keys() - {"docid"} == ours.keys() - {"docid"}
    for field, path in ours.items():
        assert (tmp_path / "out" / path).read_bytes() == Path(theirs[field]).read_bytes()


def test_an_id_that_occurs_again_gets_a_number(tmp_path, register, capsys):
    archive = write_tar(tmp_path / "test.tgz", SGML)
    register(FakeSGMLDataset, [archive], [*SGML])
    assert run(tmp_path / "out", "--archive", archive) == 0
    assert lines(tmp_path / "out/text/test.docid") == ["a", "a", "b", "a.2"]
    assert lines(tmp_path / "out/text/test.de") == ["Eins.", "Zwei.", "Drei.", "Vier."]
    assert lines(tmp_path / "out/text/test.origlang")[3] == "de"
    said = capsys.readouterr().out
    assert "3 documents, 1 document ids that occurred before, made unique" in said
    assert not (tmp_path / "out/references").exists()


def test_a_set_of_several_archives(tmp_path: Path, register: Register) -> None:
    """As wmt19/google (an archive and a plain file) and iwslt17 (an archive a pair)."""
    source = write_zip(tmp_path / "en-de.zip", {"en-de/s.en.sgm": SGML["sgm/t-src.en.sgm"]})
    target = write_tar(tmp_path / "de-en.tgz", {"de-en/t.de.sgm": SGML["sgm/t-ref.de.sgm"]})
    other = write_tar(tmp_path / "fr-en.tgz", {"fr-en/x": "not needed"})
    plain = tmp_path / "more.ref"
    plain.write_text("1\n2\n3\n4\n")
    files = ["en-de/s.en.sgm", "de-en/t.de.sgm", "tiny_x.more.ref"]
    archives = [source, target, other, plain]
    register(WMTAdditionDataset, archives, files, name="tiny/x")
    other.unlink()
    renamed = shutil.copy(target, tmp_path / "tiny_x.de-en.tgz")  # sacreBLEU's name
    given = ["--from-archive", source, renamed]
    assert run(tmp_path / "out", *given, name="tiny/x") == 0  # the plain file is downloaded
    assert lines(tmp_path / "out/references/ref-0.de") == ["Eins.", "Zwei.", "Drei.", "Vier."]
    assert lines(tmp_path / "out/references/ref-1.de") == ["1", "2", "3", "4"]


def test_downloads_and_archives_of_sacrebleu(xml, tmp_path, own_folder, capsys):
    assert run(tmp_path / "downloaded") == 0
    assert (tmp_path / "downloaded/archives/v1.tar.gz").read_bytes() == xml.read_bytes()
    (own_folder / "tiny/raw").mkdir(parents=True)
    xml.rename(own_folder / "tiny/raw/tiny.v1.tar.gz")
    before = tree(own_folder)
    assert run(tmp_path / "out") == 0
    assert tree(own_folder) == before and not (tmp_path / "out/archives").exists()
    assert lines(tmp_path / "out/text/test.de") == GERMAN
    shutil.rmtree(own_folder)
    capsys.readouterr()
    assert run(tmp_path / "none") == 1
    assert not (tmp_path / "none/archives").exists()
    said = message(capsys.readouterr().err)
    assert said.startswith(xml.as_uri()) and "cannot be downloaded" in said
    assert said.endswith("pass the file with --archive")


def test_tables_have_all_fields(xml: Path, tmp_path: Path) -> None:
    for form in ("jsonl", "tsv"):
        assert run(tmp_path / form, "--archive", xml, "--format", form) == 0
        assert [path for path in tree(tmp_path / form) if path.startswith("text")] == [
            f"text/test.{form}"
        ]
    rows = [json.loads(line) for line in lines(tmp_path / "jsonl/text/test.jsonl")]
    assert [row["ref"] for row in rows] == GERMAN
    assert list(rows[0])[:3] == ["docid", "src", "ref"]
    assert rows[0].keys() >= {"ref:A", "ref:B", "ref:unnamed", "ONLINE-X", "origlang", "domain"}
    [header, *table] = lines(tmp_path / "tsv/text/test.tsv")
    assert [dict(zip(header.split("\t"), row.split("\t"), strict=True)) for row in table] == rows


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({XML: "<dataset>"}, "sacreBLEU cannot read the set (XMLSyntaxError: "),
        ({XML: DOCUMENTS.replace("ONLINE-X", "../X")}, "'../X' of a translator or system has a"),
        ({XML: DOCUMENTS.replace('"A"', '"C"')}, "tiny has no reference ref:A for en-de"),
    ],
)
def test_archives_that_are_refused(files, said, tmp_path, register, capsys):
    archive = write_tar(tmp_path / "v1.tar.gz", files)
    register(WMTXMLDataset, [archive], [XML], refs=["A"])
    assert run(tmp_path / "out", "--archive", archive) == 1
    assert said in message(capsys.readouterr().err)
    assert not (tmp_path / "out/text").exists()


def test_options_that_are_refused(xml, tmp_path, register, capsys):
    def refusal(*options: object, name: str = "tiny") -> str:
        assert run(tmp_path / "out", *options, name=name) == 1
        return message(capsys.readouterr().err)

    other = write_tar(tmp_path / "other.tgz", {XML: DOCUMENTS + " "})
    assert "but the official v1.tar.gz has" in refusal("--archive", other)
    assert "the name must be one of v1.tar.gz" in refusal("--archive", xml, other)
    assert "no such set; the most similar" in refusal(name="wmt2023")
    assert refusal("--langs", "en-fr") == "--langs en-fr: the pairs of tiny are en-de"
    plain = write_tar(tmp_path / "plain.tgz", {"p.en": "One.\tTab\n", "p.de": "Eins.\n"})
    register(PlainTextDataset, [plain], ["p.en", "p.de"], name="plain")
    assert "--without-docids prepares its text alone" in refusal(name="plain")
    said = refusal("--without-docids", "--format", "tsv", name="plain")
    assert said.startswith("--format tsv: line 1: 'src' contains a tab")
    assert run(tmp_path / "out", "--without-docids", name="plain") == 0
    assert not (tmp_path / "out/text/test.docid").exists()


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare(sacrebleu, ["--list"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {row[0] for row in rows} == {"set", *DATASETS}
    assert prepare(sacrebleu, ["--list", "--set", "wmt21/AB", "--langs", "en-de"]) == 0
    shown = capsys.readouterr().out.splitlines()[1].split()
    assert shown == ["wmt21/AB", "src,ref:A,ref:B,docid,origlang", "en-de"]


def test_every_pair_of_the_registry_has_its_archives() -> None:
    two = ("iwslt17", "wmt19/google", "wmt17/ms", "multi30k/2018")
    for dataset in DATASETS.values():
        for pair in dataset.langpairs:
            found = sacrebleu_sets.archives(dataset, pair)
            assert len(found) == 1 + dataset.name.startswith(two)
            assert "src" in sacrebleu_sets.known_fields(dataset, pair)
            assert sacrebleu_sets.default_references(dataset, pair)
