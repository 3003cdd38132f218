"""recipes/gmat/*.sh: what is wrong is told in one sentence, before any work."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("command", "settings", "message"),
    [
        ("majority.sh", {}, "usage: recipes/gmat/majority.sh SYSTEM [LENGTH] [PAIRS]"),
        ("majority.sh window-8", {}, "error: SYSTEM must be chunks-M or lsh-M, like chunks-8"),
        ("majority.sh lsh-8 many", {}, "error: LENGTH must be a whole number of 0 or more, but is"),
        ("majority.sh lsh-8", {"CHUNK": "x"}, "error: CHUNK must be a whole number"),
        ("numeric_reasoning.sh", {}, "usage: recipes/gmat/numeric_reasoning.sh SYSTEM"),
        ("numeric_reasoning.sh free", {}, "error: SYSTEM must be full, chunks, tied or untied"),
        ("numeric_reasoning.sh full", {"UPDATES": "-1"}, "error: UPDATES must be a whole number"),
        ("wikitext2.sh", {}, "usage: recipes/gmat/wikitext2.sh SYSTEM"),
        ("wikitext2.sh 64-32", {}, "error: SYSTEM must be CHUNKxCOUNT-M or CHUNKxCOUNT-M-cN"),
        ("wikitext2.sh 64x8-32-c4", {}, "error: SYSTEM must be CHUNKxCOUNT-M or CHUNKxCOUNT-M-cN"),
        ("wikitext2.sh 64x8-32", {}, "error: no folder "),
    ],
)
def test_refused_in_one_sentence(command, settings, message, tmp_path):
    name, *arguments = command.split()
    places = {"DATA": str(tmp_path / "data"), "WORK": str(tmp_path / "work"), "BIN": "nowhere"}
    done = subprocess.run(
        [f"recipes/gmat/{name}", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **places, **settings},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0 and message in done.stderr and not done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
