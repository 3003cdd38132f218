"""`gpu.py` at tiny sizes on the CPU: its report holds together. No figure is tested."""

import json
import os
from pathlib import Path

import pytest
from forked import run_forked

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu.py"
TINY = "--shapes 1x9x2x4 1x17x2x4 --slots 3 --step-lengths 4 8 --repeats 2 --dtype fp32"


def run(tmp_path, *options):
    out = tmp_path / "report"
    argv = [str(SCRIPT), *TINY.split(), "--device", "cpu", "--out", str(out), *options]
    done = run_forked(argv, None, None, dict(os.environ))
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(out.with_suffix(".json").read_text()), done


def test_report(tmp_path):
    report, done = run(tmp_path)
    assert report["complete"]
    assert [row["contender"] for row in report["correctness"]] == ["abc"]
    assert all(error < 1e-5 for row in report["correctness"] for error in row["errors"])
    settings = [(row["shape"], row["slots"]) for row in report["attention"]]
    assert settings == [("1x9x2x4", 3), ("1x17x2x4", 3)]
    for row in report["attention"]:
        for name in ("abc", "flash"):
            assert row["contenders"][name]["forward_backward_ms"] > 0
    assert [row["length"] for row in report["steps"]] == [4, 8]
    assert "A decoding step" in done.stdout
    assert (tmp_path / "report.png").stat().st_size > 0


def test_a_budget_that_is_spent(tmp_path):
    report, _ = run(tmp_path, "--budget", "0")
    assert not report["complete"]
    assert report["correctness"]
    assert report["attention"] == []


@pytest.mark.parametrize("shape", ["8x0x8x64"])
def test_a_wrong_shape(shape, tmp_path):
    done = run_forked([str(SCRIPT), "--shapes", shape], None, None, dict(os.environ))
    assert done.returncode == 2
    assert f"must be BxTxHxD, four numbers, but is '{shape}'" in done.stderr
