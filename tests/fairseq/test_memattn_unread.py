"""Files that the memattn commands write, whoever reads what they print and in what characters."""

import json
import os
import sys
from types import SimpleNamespace

import pytest

from fairseq_memattn.cli import main
from fairseq_memattn.cli.commands import translate
from fairseq_memattn.files import write_text

IDS = ["первый", "первый", "второй"]
LINES = ["the cat sees a dog", "it hears one bird near the house", "then a tree stops"]
GROUPS = [{"src": "a", "dst": ["b", "c"], "true_ind": 0}]
EXAMPLES = [{"expected": "tree", "rule": "A"}]
COMMANDS = {
    "score": "score --system hyp --reference ref --docids ids --per-document --positions "
    "--resamples 20 --json report --output output --plot plot.png",
    "contrast of scores": "contrast --sets groups.json --scores scores --json report",
    "archs": "archs abc_mlp_transformer --json report",
    "contrast of text": "contrast --sets examples.json --translations text --lang en --json report",
}


def written(folder, name, lines):
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """The working folder, with the files of COMMANDS."""
    for name, lines in {
        "ids": IDS, "hyp": ["the cat", *LINES[1:]], "ref": LINES, "scores": [-1, -2],
        "text": ["a tree"], "groups.json": [json.dumps(GROUPS)],
        "examples.json": [json.dumps(EXAMPLES)],
    }.items():  # fmt: skip
        written(tmp_path, name, lines)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def without_a_reader(monkeypatch, argv):
    """The exit status of a command whose first line fails, as nobody reads it."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", buffering=1) as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        return main(argv)


@pytest.mark.parametrize("command", COMMANDS)
def test_files_are_written_before_anything_is_printed(command, texts, monkeypatch):
    if command == "contrast of text":
        pytest.importorskip("sentence_splitter")
    argv = COMMANDS[command].split()
    options = [number for number, flag in enumerate(argv) if flag in ("--json", "--output")]
    assert without_a_reader(monkeypatch, argv) == 141
    for number in options:
        assert (texts / argv[number + 1]).stat().st_size
    assert json.loads((texts / "report").read_text(encoding="utf-8"))


def test_tables_are_utf8_in_every_locale(texts, monkeypatch):
    with open(texts / "printed", "w", encoding="ascii") as printed:
        monkeypatch.setattr(sys, "stdout", printed)
        assert main(COMMANDS["score"].split()) == 0
    assert "первый" in (texts / "printed").read_text("utf-8")


def test_a_name_that_is_not_utf8(texts, capsys):
    """JSON stays UTF-8, pictures are drawn, and text such as a script has the bytes of the name."""
    name = os.fsdecode(b"hyp\xe4")
    (texts / "hyp").rename(name)
    files = ["--json", "report", "--lengths", "reference", "--plot", "plot.png"]
    assert main(["score", "--system", name, "--reference", "ref", *files]) == 0
    report = json.loads((texts / "report").read_text(encoding="utf-8"))
    assert report["baseline"] == r"hyp\udce4"
    assert list(report["measures"]["BLEU"]["systems"]) == [r"hyp\udce4"]
    write_text(texts / "script", f"cat {name}\n")
    assert (texts / "script").read_bytes() == b"cat hyp\xe4\n"


def test_translations_on_the_standard_output_are_utf8(texts, monkeypatch):
    found = SimpleNamespace(translate=lambda documents, **options: documents)
    monkeypatch.setattr(translate, "load_translator", lambda folder, device: found)
    with open(texts / "printed", "w", encoding="cp1252") as printed:
        monkeypatch.setattr(sys, "stdout", printed)
        assert main(["translate", str(texts), "--input", "ids"]) == 0
    assert (texts / "printed").read_text(encoding="utf-8").splitlines() == IDS
