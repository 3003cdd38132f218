"""recipes/by_position.py: perplexities by position, over seeds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "recipes" / "by_position.py"


@pytest.fixture
def rows(tmp_path):
    """What `memattn perplexity --json` writes: two systems and two seeds."""
    runs = {"a-1": (9.0, 8.0), "a-2": (11.0, 8.0), "b-c-1": (7.0, 6.0), "b-c-2": (9.0, 6.0)}
    for name, perplexities in runs.items():
        write(tmp_path / name, perplexities)
    return tmp_path


def write(folder, perplexities):
    folder.mkdir()
    edges = [0, 64, 128]
    parts = [
        {"begin": begin, "end": end, "perplexity": perplexity}
        for begin, end, perplexity in zip(edges, edges[1:], perplexities, strict=False)
    ]
    (folder / "positions.json").write_text(json.dumps([{"way": "context 0", "by_position": parts}]))


def by_position(folder, *systems, seeds=()):
    argv = [sys.executable, SCRIPT, folder, "--output", folder / "out", "--seeds", "1"]
    argv += [*seeds, "--systems", *systems]
    return subprocess.run([*map(str, argv)], capture_output=True, text=True)


def test_table_and_picture(rows):
    done = by_position(rows, "a", "b-c", seeds=["2"])
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "| tokens before | 0 to 63 | 64 to 127 |",
        "| --- | --- | --- |",
        "| `a` | 10.00 ± 1.41 | 8.00 ± 0.00 |",
        "| `b-c` | 8.00 ± 1.41 | 6.00 ± 0.00 |",
    ]
    assert (rows / "out.md").read_text() == done.stdout
    assert (rows / "out.png").read_bytes().startswith(b"\x89PNG")


def test_refused_in_one_sentence(rows):
    write(rows / "short-1", (5.0,))
    write(rows / "infinite-1", (5.0, None))
    for system, message in {
        "none": f"{rows}/none-1/positions.json must be a file of `memattn perplexity",
        "short": f"{rows}: short and a have blocks of other lengths",
        "infinite": f"{rows}/infinite-1/positions.json: has a perplexity that is not finite",
    }.items():
        done = by_position(rows, "a", system)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: {message}")
        assert len(done.stderr.splitlines()) == 1
