"""The tables and the picture of recipes/seeds.py."""

import sys
from importlib import import_module
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def seeds():
    sys.path.insert(0, str(Path(__file__).parents[2] / "recipes"))
    yield import_module("seeds")
    sys.path.pop(0)


def write(folder, name, bleu, ppl):
    lines = [f"ppl {ppl}", f"BLEU|nrefs:1 = {bleu} 60.0/40.0/30.0/20.0 (BP = 0.9)"]
    (folder / f"{name}.score").write_text("\n".join([*lines, ""]), encoding="utf-8")


def test_means_and_differences(seeds, tmp_path, capsys):
    write(tmp_path, "softmax-1", 30, 8)
    write(tmp_path, "softmax-2", 32, 9)
    write(tmp_path, "abc-8-8-1", 29.5, 8.5)
    write(tmp_path, "abc-8-8-2", 30.5, 9.5)
    write(tmp_path, "abc-8-8-3", 60, 1)
    write(tmp_path, "abc-8-8-relu-1", 31, 9)
    out = tmp_path / "out"
    systems = "softmax abc-8-8 abc-8-8-relu".split()
    args = [str(tmp_path), "--systems", *systems, "--values", "BLEU", "perplexity"]
    assert seeds.main([*args, "--paper", "softmax=27.2", "--output", str(out)]) == 0
    table = (
        "| system | seeds | BLEU | perplexity | BLEU, difference from `softmax` | the paper |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| `softmax` | 2 | 31.00 ± 1.41 | 8.50 ± 0.71 |  | 27.2 |\n"
        "| `abc-8-8` | 3 | 40.00 ± 17.33 | 6.33 ± 4.65 | -1.00 ± 0.71 |  |\n"
        "| `abc-8-8-relu` | 1 | 31.00 | 9.00 | +1.00 |  |\n"
        "\n"
        "| BLEU | seed 1 | seed 2 | seed 3 |\n"
        "| --- | --- | --- | --- |\n"
        "| `softmax` | 30.00 | 32.00 |  |\n"
        "| `abc-8-8` | 29.50 | 30.50 | 60.00 |\n"
        "| `abc-8-8-relu` | 31.00 |  |  |\n"
    )
    assert capsys.readouterr().out == table == (tmp_path / "out.md").read_text(encoding="utf-8")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_some_of_the_seeds(seeds, tmp_path, capsys):
    for seed, bleu in enumerate((30, 32, 60), 1):
        write(tmp_path, f"softmax-{seed}", bleu, 8)
    args = [
        str(tmp_path),
        "--systems",
        "softmax",
        "--values",
        "BLEU",
        "--output",
        str(tmp_path / "o"),
    ]
    assert seeds.main([*args, "--seeds", "1", "2"]) == 0
    assert "| `softmax` | 2 | 31.00 ± 1.41 |" in capsys.readouterr().out
    assert seeds.main([*args, "--seeds", "4"]) == 2


def test_scientific_notation(seeds, tmp_path, capsys):
    write(tmp_path, "a-1", 30, "1.2e+17")
    args = [str(tmp_path), "--systems", "a", "--values", "perplexity"]
    assert seeds.main([*args, "--output", str(tmp_path / "out")]) == 0
    assert "| 1 | 120000000000000000.00 |" in capsys.readouterr().out


def test_quotients(seeds, tmp_path, capsys):
    for seed, softmax, bounded in ((1, 8, 10), (2, 10, 11)):
        write(tmp_path, f"softmax-{seed}", 30, softmax)
        write(tmp_path, f"abc-8-{seed}", 30, bounded)
    args = [str(tmp_path), "--systems", "softmax", "abc-8", "--values", "perplexity", "--relative"]
    assert seeds.main([*args, "--output", str(tmp_path / "out")]) == 0
    table, _ = capsys.readouterr().out.split("\n\n")
    assert table + "\n" == (
        "| system | seeds | perplexity | perplexity, relative to `softmax` |\n"
        "| --- | --- | --- | --- |\n"
        "| `softmax` | 2 | 9.00 ± 1.41 |  |\n"
        "| `abc-8` | 2 | 10.50 ± 0.71 | 1.175 ± 0.106 |\n"
    )


def test_rows_of_several_tasks(seeds, tmp_path, capsys):
    for name in ("short", "long"):
        write(tmp_path, f"{name}-1", 30, 8)
    args = [str(tmp_path), "--systems", "short", "long", "--values", "BLEU", "--several-tasks"]
    assert seeds.main([*args, "--paper", "long=9", "--output", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == (
        "| system | seeds | BLEU | the paper |\n"
        "| --- | --- | --- | --- |\n"
        "| `short` | 1 | 30.00 |  |\n"
        "| `long` | 1 | 30.00 | 9 |\n"
    )


def test_systems_in_folders(seeds, tmp_path, capsys):
    for folder, bleu in (("one", 30), ("two", 31)):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, "softmax-1", bleu, 8)
    args = [str(tmp_path), "--systems", "one/softmax", "two/softmax", "--values", "BLEU"]
    assert seeds.main([*args, "--output", str(tmp_path / "out")]) == 0
    assert "| `two/softmax` | 1 | 31.00 | +1.00 |\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--systems softmax abc-8-8 --values BLEU", "there is no file abc-8-8-SEED.score"),
        ("--systems softmax --values chrF", "softmax-1.score: has no chrF"),
        ("--systems softmax --values BLEU --paper abc=1", "--paper abc=1: must be SYSTEM=FIGURE"),
        ("--systems softmax --values BLEU --paper softmax", "--paper softmax: must be SYSTEM="),
    ],
)
def test_what_cannot_be_a_table(seeds, tmp_path, capsys, args, message):
    write(tmp_path, "softmax-1", 30, 8)
    assert seeds.main([str(tmp_path), *args.split(), "--output", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.md").exists()
