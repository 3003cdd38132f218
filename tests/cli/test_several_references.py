"""`memattn score` with several references says what sacreBLEU's command says of the same files."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu

from fairseq_memattn.cli import main
from fairseq_memattn.evaluation.text_columns import read_column

WORDS = "The a Cat dog Sees hears one bird tree and then it stops near the old House".split()
IDS = [f"d{index // 4}" for index in range(22)]


def texts() -> dict[str, list[str]]:
    random_ = random.Random(5)
    first = [" ".join(random_.choices(WORDS, k=9)) + "." for _ in IDS]

    def disturbed() -> list[str]:
        return [
            " ".join(word for word in line.split() if random_.random() > 0.2) or line
            for line in first
        ]

    return {"A": first, "B": disturbed(), "base": disturbed(), "ours": disturbed(), "ids": IDS}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, lines in texts().items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def documents(lines: list[str]) -> list[str]:
    parts = [[line for line, name in zip(lines, IDS, strict=True) if name == one]
             for one in dict.fromkeys(IDS)]  # fmt: skip
    return [" ".join(part) for part in parts]


def report(options: str) -> dict:
    assert main(["score", *options.split(), "--json", "report.json"]) == 0
    return json.loads(Path("report.json").read_text("utf-8"))


def test_all_references_are_used(folder: Path) -> None:
    found = report("--system base --reference A --reference B --docids ids --per-document")
    assert (found["reference"], found["more_references"]) == ("A", ["B"])
    text = texts()
    both, base = [text["A"], text["B"]], text["base"]
    of_documents = [documents(lines) for lines in both]
    expected = {
        "s-BLEU": sacrebleu.corpus_bleu(base, both),
        "d-BLEU": sacrebleu.corpus_bleu(documents(base), of_documents),
        "chrF2": sacrebleu.corpus_chrf(base, both),
    }
    for name, measure in found["measures"].items():
        assert measure["systems"]["base"]["score"] == expected[name].score
        assert "nrefs:2" in measure["signature"]
    one = sacrebleu.corpus_bleu(base[4:8], [lines[4:8] for lines in both]).score
    assert found["per_document"][1]["systems"]["base"]["s-BLEU"] == one
    with_one = report("--system base --reference A --docids ids")
    assert with_one["measures"].keys() == expected.keys()
    for name, measure in with_one["measures"].items():
        assert measure["systems"]["base"]["score"] != expected[name].score


def test_the_bootstrap_is_that_of_sacrebleus_command(folder, capsys, monkeypatch):
    options = "--system base --system ours --reference A --reference B --resamples 100 --seed 7"
    ours = report(options)["measures"]["BLEU"]["systems"]["ours"]
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    command = "-m sacrebleu A B -i base ours -m bleu --paired-bs --paired-bs-n 100 -w 6 -f json"
    done = subprocess.run([sys.executable, *command.split()], capture_output=True, check=True)
    theirs = json.loads(done.stdout)[1]["BLEU"]
    for name in ("score", "p_value", "mean", "ci"):
        assert ours[name] == pytest.approx(theirs[name], abs=1e-6)


def test_windows_and_tables_with_several_references(folder: Path) -> None:
    for name in ("A", "B", "base"):
        lines = [f"before _eos {line}" for line in texts()[name]]
        (folder / f"w.{name}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    plain = report("--system x=base --reference A --reference B")
    windows = "--system x=w.base --reference w.A --reference w.B --separator _eos"
    assert report(f"{windows} --output out.jsonl")["measures"] == plain["measures"]
    columns = {"ref": "A", "ref2": "B", "hyp": "base"}
    assert {name: read_column(Path("out.jsonl"), name) for name in columns} == {
        name: texts()[column] for name, column in columns.items()
    }
    tables = "--system x=out.jsonl --reference out.jsonl --reference out.jsonl:ref2"
    assert report(tables)["measures"] == plain["measures"]


def test_measures_of_documents_use_all_references(folder: Path) -> None:
    text = texts()
    text["base"][0] = text["B"][0]
    (folder / "base").write_text("\n".join(text["base"]) + "\n", encoding="utf-8")
    options = "--docids ids --positions --lengths source --source A --slide-window 1"
    found = report(f"--system base --reference A --reference B {options}")
    first, chosen = found["positions"]["rows"][0], [0, 4, 8, 12, 16, 20]
    both = [[lines[index] for index in chosen] for lines in (text["A"], text["B"])]
    base = [text["base"][index] for index in chosen]
    assert first["sentences"] == len(chosen)
    equal = sum(line in pair for line, *pair in zip(base, *both, strict=True))
    assert text["base"][0] not in text["A"]  # so it is the second reference that it equals
    assert first["systems"]["base"] == {
        "s-BLEU": sacrebleu.corpus_bleu(base, both).score,
        "chrF2": sacrebleu.corpus_chrf(base, both).score,
        "accuracy": 100 * equal / len(chosen),
    }
    (row,) = found["lengths"]["rows"]
    assert row["systems"]["base"]["chrF2"] == found["measures"]["chrF2"]["systems"]["base"]["score"]
    metric = sacrebleu.BLEU(effective_order=True)
    triples = zip(text["base"], text["A"], text["B"], strict=True)
    scores = [metric.sentence_score(line, own).score for line, *own in triples]
    slide = found["measures"]["SLIDE-BLEU"]
    assert slide["systems"]["base"]["score"] == pytest.approx(sum(scores) / len(scores))
    assert "nrefs:2" in slide["signature"]


def test_a_reference_that_lacks_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """These sentences have the other references, as in sacreBLEU; the signature says so."""
    text = texts()
    for name, number in (("A", 3), ("B", 21)):
        lines = [line if index != number else "" for index, line in enumerate(text[name])]
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
        text[name] = [line or None for line in lines]
    found = report("--system base --reference A --reference B")
    metric = sacrebleu.BLEU()
    expected = metric.corpus_score(text["base"], [text["A"], text["B"]])
    measured = found["measures"]["BLEU"]
    assert measured["systems"]["base"]["score"] == pytest.approx(expected.score)
    assert measured["signature"].split("|")[0] == "nrefs:var"
    told = capsys.readouterr().err
    assert "note: --reference B: 1 of 22 lines are empty, first line 22" in told
    (folder / "B").write_text((folder / "A").read_text())
    assert main("score --system base --reference A --reference B".split()) == 1
    assert "--reference A, line 4: there is no reference; 1 of 22" in capsys.readouterr().err


def test_blank_lines_between_documents(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `memattn translate` writes, and a reference in the same form."""
    text = texts()
    plain = report("--system base --reference A")

    def separated(name: str, width: int) -> None:
        rows = [line + "\n" * (1 + (not (i + 1) % width)) for i, line in enumerate(text[name])]
        (folder / name).write_text("\n".join("".join(rows).splitlines()) + "\n")

    separated("base", 4)
    assert report("--system base --reference A")["measures"] == plain["measures"]
    ids = report("--system base --reference A --docids ids")["measures"]
    assert ids["chrF2"] == plain["measures"]["chrF2"]
    separated("A", 4)
    assert report("--system base --reference A")["measures"] == plain["measures"]
    assert report("--system base --reference A --docids ids")["measures"] == ids
    separated("base", 5)
    capsys.readouterr()
    assert main("score --system base --reference A".split()) == 1
    assert "base has 26 lines, but there are 27 references" in capsys.readouterr().err
    (folder / "A").write_text("".join(f"{line}\n" for line in text["A"]))
    assert main("score --system base --reference A --docids ids".split()) == 1
    assert "base has 26 lines, but there are 22 references" in capsys.readouterr().err


def test_wrong_references(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "short").write_text("a\n")
    for second, message in (
        ("short", "--reference short has 1 lines, but --reference A has 22"),
        ("none", "--reference none: there is no such file"),
        ("A", "--reference A is given twice"),
    ):
        command = ["score", "--system", "base", "--reference", "A", "--reference", second]
        assert main([*command, "--output", "out"]) == 1
        assert capsys.readouterr().err.partition("error: ")[2].strip() == message
        assert not Path("out").exists()
