"""Columns of tables: every command reads them as it reads lines, and writes what it reads."""

import json
import random
import re
from argparse import Namespace
from pathlib import Path

import pytest

from fairseq_memattn.cli import main
from fairseq_memattn.cli.shared.texts import read_line
from fairseq_memattn.evaluation.text_columns import read_column, table_lines

WORDS = ["the", "cat", "sees", "“then”", "Öl", "a\u2028b", ":", "=", "\\", '"', "'", "it"]
SIZE = 40


def texts() -> dict[str, list[str]]:
    random_ = random.Random(3)
    lines = [" ".join(random_.choices(WORDS, k=9)) for _ in range(SIZE)]
    other = [" ".join(sorted(line.split(" "), key=str.lower)) for line in lines]
    ids = [f"talk {index // 7}" for index in range(SIZE)]
    return {"docid": ids, "src": lines, "ref": lines, "ref:B": other, "hyp": other}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same text as plain files and as tables."""
    for name, lines in texts().items():
        write(tmp_path / name, lines)
    for kind in ("jsonl", "tsv"):
        write(tmp_path / f"all.{kind}", table_lines(texts(), kind))
    rows = zip(texts()["docid"], texts()["hyp"], strict=True)
    write(tmp_path / "bare.tsv", ["\t".join(row) for row in rows])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, lines) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def scored(capsys: pytest.CaptureFixture[str], options: str) -> str:
    capsys.readouterr()
    assert main(["score", *options.split()]) == 0
    return capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], command: str) -> str:
    capsys.readouterr()
    assert main(command.split()) == 1
    [line] = capsys.readouterr().err.splitlines()
    return line.partition(": error: ")[2]


@pytest.mark.parametrize(
    ("argument", "default", "column"),
    [
        ("all.jsonl", "ref:B", "ref:B"),
        ("all.jsonl:ref:B", "src", "ref:B"),
        ("all.tsv:ref:B", "src", "ref:B"),
        ("all.tsv", "hyp", "hyp"),
        ("bare.tsv:2", "src", "hyp"),
        ("bare.tsv:1", "src", "docid"),
        ("hyp", "src", "hyp"),
    ],
)
def test_a_column_is_read_as_it_was_written(folder, argument, default, column):
    assert read_column(Path(argument), default) == texts()[column]


@pytest.mark.parametrize(
    "table",
    [
        "--system all.jsonl --reference all.jsonl --docids all.jsonl",
        "--system all.tsv --reference all.tsv --docids all.tsv",
        "--system all.jsonl:hyp --reference all.tsv:ref --docids bare.tsv:1",
        "--system bare.tsv:2 --reference ref --docids all.jsonl:docid",
    ],
)
def test_scores_of_tables_are_those_of_lines(folder, capsys, table):
    lines = scored(capsys, "--system hyp --reference ref --docids docid --per-document")
    assert scored(capsys, f"{table} --per-document").splitlines()[:3] == lines.splitlines()[:3]
    assert scored(capsys, f"{table} --per-document").count("talk") == 6


def test_what_is_scored_is_written_as_a_table(folder, capsys):
    before = scored(capsys, "--system hyp --reference ref --docids docid")
    for kind in ("jsonl", "tsv"):
        out = f"out.{kind}"
        scored(capsys, f"--system hyp --reference ref --docids docid --output {out}")
        columns = {name: texts()[name] for name in ("docid", "ref", "hyp")}
        written = Path(out).read_text("utf-8")
        assert written == "".join(f"{line}\n" for line in table_lines(columns, kind))
        assert scored(capsys, f"--system {out} --reference {out} --docids {out}") == before


def test_translations_of_a_table_are_judged_as_lines(folder, capsys):
    pytest.importorskip("sentence_splitter")
    entries = [{"expected": "cat", "rule": "DO.ELL"} for _ in range(SIZE)]
    (folder / "auxiliary.json").write_text(json.dumps(entries))
    found = []
    for argument in ("a=hyp", "a=all.jsonl", "a=bare.tsv:2"):
        assert main(["contrast", "--sets", "auxiliary.json", "--translations", argument,
                     "--lang", "en"]) == 0  # fmt: skip
        found.append(capsys.readouterr().out)
    assert found[0] == found[1] == found[2]


def test_the_line_of_a_picture_may_be_in_a_table(folder: Path) -> None:
    args = Namespace(text=Path("all.jsonl"), target=Path("bare.tsv:2"), index=3)
    assert read_line(args) == (texts()["src"][3], texts()["hyp"][3])
    args.text = Path("no.tsv:1")
    with pytest.raises(ValueError, match="--text no.tsv:1: there is no such file"):
        read_line(args)


WRONG_TABLES = [
    ('{"hyp": "a"}\n{"text": "a"}\n', "x.jsonl", "x.jsonl, line 2: has no key 'hyp', but text"),
    ('{"hyp": "a\\nb"}\n', "x.jsonl", "x.jsonl, line 1: 'hyp' contains a line break"),
    ('{"hyp": "\\ud800"}\n', "x.jsonl", "'hyp' contains half of a surrogate pair"),
    ("a\tb\n1\t2\n", "x.tsv", "x.tsv, line 1: has no column 'hyp', but a, b; name one, or"),
    ("a\thyp\n1\n", "x.tsv", "line 2: has 1 fields, which tabs separate, but column 'hyp' is"),
    ("a\tb\n", "x.tsv:3", "x.tsv, line 1: has 2 fields, which tabs separate, but column '3'"),
]


def test_wrong_tables(folder: Path) -> None:
    for content, argument, message in WRONG_TABLES:
        (folder / argument.partition(":")[0]).write_text(content)
        with pytest.raises(ValueError, match=re.escape(message)):
            read_column(Path(argument), "hyp")
