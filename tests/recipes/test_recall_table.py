"""The tables and the picture of recipes/recall/table.py."""

import pytest
from scripts import load


@pytest.fixture(scope="module")
def recall():
    return load("recall/table.py")


def write(folder, name, *rows):
    path = folder / name / "recall.txt"
    path.parent.mkdir(exist_ok=True, parents=True)
    lines = ["\t".join(map(str, row)) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_means_and_shares(recall, tmp_path, capsys):
    form = tmp_path / "multi_query"
    write(form, "softmax-1", (8, 2, 100, 4000), (16, 2, 90, 8000))
    write(form, "mlp-4-1", (8, 2, 90, 1000), (16, 2, 80, 1000))
    write(form, "mlp-4-only-3", (8, 2, 10, 1000), (16, 2, 9, 1000))
    write(form, "mlp-4-2", (8, 2, 92, 1000), (16, 2, 70, 1000))
    out = tmp_path / "out"
    assert recall.main([str(tmp_path), "--output", str(out)]) == 0
    table = (
        "multi_query\n\n"
        "| system | seeds | bytes of state | 8 symbols, 2 pairs | 16 symbols, 2 pairs |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| `softmax` | 1 | 4,000 (100 %) | 100.0 | 90.0 |\n"
        "| `mlp-4` | 2 | 1,000 (25 %) | 91.0 ± 1.4 | 75.0 ± 7.1 |\n"
        "| `mlp-4-only` | 1 | 1,000 (25 %) | 10.0 | 9.0 |\n"
    )
    assert capsys.readouterr().out == table == (tmp_path / "out.md").read_text(encoding="utf-8")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("mlp-4", (8, 2, 90), "line 1: must be length, pairs, accuracy and bytes"),
        ("mlp", (8, 2, 90, 1000), "must be in a folder SYSTEM-SEED"),
        (
            "mlp-4-2",
            (8, 2, 90, 1000),
            "softmax-2/recall.txt: has other tests than the files before",
        ),
        (None, (), "has no SYSTEM-SEED/recall.txt"),
    ],
)
def test_folders_that_cannot_be(recall, tmp_path, capsys, name, row, message):
    if name == "mlp-4-2":
        write(tmp_path / "needle", "softmax-2", (16, 2, 90, 2000))
    if name is not None:
        write(tmp_path / "needle", name, row)
    assert recall.main([str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.md").exists()
