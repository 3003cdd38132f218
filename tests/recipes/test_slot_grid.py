"""recipes/abc/slot_grid.py: a table and a heat map."""

import json
import subprocess
import sys
from pathlib import Path

from matplotlib import colormaps
from matplotlib.image import imread

SCRIPT = Path(__file__).parents[2] / "recipes" / "abc" / "slot_grid.py"


def test_table_and_heat_map(tmp_path):
    bleu = {"abc-8-8": [20, 30], "abc-16-8": [30, 30], "abc-8-4": [10, 10], "abc-16-4": [40, 40]}
    scores = {name: {"BLEU": dict(enumerate(values))} for name, values in bleu.items()}
    (tmp_path / "cells.json").write_text(json.dumps({"scores": scores}))
    argv = [sys.executable, SCRIPT, tmp_path / "cells.json", "--output", tmp_path / "grid"]
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "| causal \\ cross | 8 | 16 |",
        "| --- | --- | --- |",
        "| 8 | 25.00 ± 7.07 | 30.00 ± 0.00 |",
        "| 4 | 10.00 ± 0.00 | 40.00 ± 0.00 |",
    ], done.stderr
    assert (tmp_path / "grid.md").read_text() == done.stdout
    # A cell for each score, in its colour.
    picture = imread(tmp_path / "grid.png")[:, :, :3]
    for score in (10, 25, 30, 40):
        colour = colormaps["viridis"]((score - 10) / 30)[:3]
        assert (abs(picture - colour).max(axis=2) < 0.01).mean() > 0.05
