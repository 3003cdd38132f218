"""recipes/abc/slot_grid.py: a table and a heat map of the scores that are there."""

import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
from matplotlib import colormaps
from matplotlib.image import imread

from fairseq_memattn.cli import main

SCRIPT = Path(__file__).parents[2] / "recipes" / "abc" / "slot_grid.py"
REFERENCE = "the cat sees one old house near the tree\na bird hears it and then stops\n"
WORSE = {"abc-8-8": ["cat", "bird", "old"], "abc-16-8": ["cat"], "abc-16-16": []}


@pytest.fixture
def cells(tmp_path, capsys):
    """Scores as `memattn score` prints them; abc-8-16 was interrupted."""
    (tmp_path / "reference").write_text(REFERENCE)
    scores = {}
    for system, spoilt in WORSE.items():
        text = " ".join("wrong" if word in spoilt else word for word in REFERENCE.split(" "))
        (tmp_path / "system").write_text(text)
        files = ["--system", str(tmp_path / "system"), "--reference", str(tmp_path / "reference")]
        assert main(["score", *files]) == 0
        (tmp_path / f"{system}-3.score").write_text(capsys.readouterr().out)
        bleu = sacrebleu.corpus_bleu(text.splitlines(), [REFERENCE.splitlines()])
        scores[system] = f"{bleu.score:.2f}"
    (tmp_path / "abc-8-16-3.score").write_text("")
    return tmp_path, scores


def grid(folder, *flags):
    argv = [sys.executable, SCRIPT, folder, "--seeds", "3", "--cross", "8", "16", *flags]
    return subprocess.run([*map(str, argv)], capture_output=True, text=True)


def test_table_and_heat_map(cells):
    folder, scores = cells
    outputs = ["--table", folder / "grid.md", "--picture", folder / "grid.png"]
    done = grid(folder, "--causal", "8", "16", *outputs)
    assert done.returncode == 0
    assert done.stderr == "1 of 4 runs have no score: abc-8-16-3\n"
    assert done.stdout.splitlines()[:4] == [
        "| causal \\ cross | 8 | 16 |",
        "| --- | --- | --- |",
        f"| 8 | {scores['abc-8-8']} | {scores['abc-16-8']} |",
        "| 16 |  | 100.00 |",
    ]
    assert f"version:{sacrebleu.__version__}" in done.stdout.splitlines()[-1]
    assert (folder / "grid.md").read_text() == done.stdout
    # A cell for each score, in its colour.
    picture = imread(folder / "grid.png")[:, :, :3]
    bleu = sorted(map(float, scores.values()))
    for score in bleu:
        colour = colormaps["viridis"]((score - bleu[0]) / (bleu[-1] - bleu[0]))[:3]
        assert (abs(picture - colour).max(axis=2) < 0.01).mean() > 0.05


def test_means_over_the_seeds(cells):
    folder, _ = cells
    line = (folder / "abc-16-16-3.score").read_text()
    for seed, bleu in ((1, "20.00"), (2, "30.00")):
        (folder / f"abc-8-8-{seed}.score").write_text(line.replace("100.00", bleu))
    done = grid(folder, "--seeds", "1", "2", "--causal", "8", "--picture", folder / "grid.png")
    assert done.stdout.splitlines()[2] == "| 8 | 25.00 ± 7.07 |  |"
    assert done.stderr == "2 of 4 runs have no score: abc-16-8-1, abc-16-8-2\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--causal", "4"], "{0} has no score of any of the 2 runs"),
        (["--picture", "x.txt"], "--picture must end with .png or another image format"),
        (["--table", "nowhere/x.md"], "--table nowhere/x.md: the folder"),
    ],
)
def test_refused_in_one_sentence(flags, message, cells):
    done = grid(cells[0], *flags)
    assert done.returncode == 1
    assert done.stderr.startswith(f"slot_grid.py: error: {message.format(cells[0])}")
    assert len(done.stderr.splitlines()) == 1


def test_scores_of_different_signatures_are_refused(cells):
    folder, _ = cells
    path = folder / "abc-8-8-3.score"
    path.write_text(path.read_text().replace("case:mixed", "case:lc"))
    done = grid(folder)
    assert done.returncode == 1
    assert "were scored in different ways: " in done.stderr
    assert "case:lc" in done.stderr and "case:mixed" in done.stderr
