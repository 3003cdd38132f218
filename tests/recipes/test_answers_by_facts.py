"""recipes/t5mem/answers_by_facts.py: exact match by the number of supporting facts."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scripts import load

Main = Callable[[list[str]], int]
STORY = "Ines walked to the attic. Ines took the kettle. Ines walked to the stable."
ASKED = [
    ("1", "Where is Ines?", "stable", [2]),
    ("2", "Where is the kettle?", "stable", [1, 2]),
    ("3", "Where was the kettle before the stable?", "attic", [0, 1, 2]),
    ("4", "Where is Ines?", "attic", [0]),
    ("5", "Where is Ines?", "stable", [2]),
]


@pytest.fixture(scope="module")
def main() -> Main:
    return load("t5mem/answers_by_facts.py").main


def stories(folder: Path, keep: str = "facts") -> Path:
    """The questions in the format of `memattn prepare stories`."""
    questions = [
        {
            "id": name,
            "question": question,
            "answers": [{"text": answer, "answer_start": STORY.index(answer)}],
            keep: facts,
        }
        for name, question, answer, facts in ASKED
    ]
    paragraphs = [
        {"context": STORY, "qas": questions[:2]},
        {"context": STORY, "qas": questions[2:]},
    ]
    path = folder / "test.json"
    path.write_text(json.dumps({"data": [{"title": "stories", "paragraphs": paragraphs}]}))
    return path


def scores(main: Main, folder: Path, gold: Path, **answers: str) -> int:
    path = folder / "predictions.json"
    path.write_text(json.dumps({name[1:]: answer for name, answer in answers.items()}))
    return main([str(path), "--gold", str(gold)])


def test_table(main: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"_1": "stable", "_2": "the stable", "_3": "stable", "_4": "stable", "_5": "attic"}
    assert scores(main, tmp_path, stories(tmp_path), **given) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["facts", "questions", "exact", "match", "most", "frequent", "answer"],
        ["1", "3", "33.3", "66.7"],
        ["2", "1", "100.0", "100.0"],
        ["3", "1", "0.0", "100.0"],
        ["all", "5", "40.0", "60.0"],
    ]


def test_files_that_do_not_fit(main, tmp_path, capsys):
    assert scores(main, tmp_path, tmp_path / "no.json") == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'no.json'}: there is no such file\n"
    gold = stories(tmp_path)
    assert scores(main, tmp_path, gold, _1="attic") == 2
    assert "lacks 4 of the 5 questions, the first being '2'" in capsys.readouterr().err
    assert scores(main, tmp_path, stories(tmp_path, keep="level")) == 2
    said = f"error: --gold {gold}: not a file of `memattn prepare stories`, with facts\n"
    assert capsys.readouterr().err == said
    gold = stories(tmp_path)
    content = json.loads(gold.read_text())
    content["data"][0]["paragraphs"][0]["qas"][0]["answers"] = []
    gold.write_text(json.dumps(content))
    assert scores(main, tmp_path, gold, _1="attic") == 2
    assert "the question '1' has no accepted answer" in capsys.readouterr().err
