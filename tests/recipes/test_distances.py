"""The table and the picture of recipes/stream/distances.py."""

import json

import pytest
from scripts import load


@pytest.fixture(scope="module")
def distances():
    return load("stream/distances.py")


def written(path, accuracies):
    parts = {
        name: {"distances": {d: {"accuracy": value} for d, value in values.items()}}
        for name, values in accuracies.items()
    }
    path.write_text(json.dumps({"results": {"phenomena": parts}}), encoding="utf-8")
    return path


def test_a_row_for_each_system(distances, tmp_path, capsys):
    one = written(tmp_path / "one.json", {"pronoun": {"1": 0.5, "30": 0.996}})
    two = written(tmp_path / "two.json", {"pronoun": {"1": 1.0, "30": 0.25}})
    out = tmp_path / "out"
    assert distances.main([f"windows={one}", str(two), "--output", str(out)]) == 0
    table = "|  |  | 1 | 30 |\n| --- | --- | --- | --- |\n"
    table += "| pronoun | windows | 50 | 100 |\n| pronoun | two | 100 | 25 |\n"
    assert capsys.readouterr().out == table == (tmp_path / "out.md").read_text(encoding="utf-8")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_two_systems_of_one_name(distances, tmp_path, capsys):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder / "contrast.json", {"pronoun": {"1": 0.5}})
    files = [str(tmp_path / folder / "contrast.json") for folder in ("one", "two")]
    assert distances.main([*files, "--output", str(tmp_path / "out")]) == 2
    assert "two systems have the name contrast" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, message",
    [
        ({"pronoun": {"1": 0.5, "3": 1}}, "pronoun: must have the distances 1, 2, but has 1, 3"),
        ({"deixis": {"1": 0.5, "2": 1}}, "two.json has no pronoun"),
        (None, "must be a file of `memattn contrast --json`"),
    ],
)
def test_files_that_do_not_fit(content, message, distances, tmp_path, capsys):
    one = written(tmp_path / "one.json", {"pronoun": {"1": 0.5, "2": 1}})
    two = tmp_path / "two.json"
    if content:
        written(two, content)
    out = tmp_path / "out"
    assert distances.main([f"a={one}", f"b={two}", "--output", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.md").exists()
