"""The kernels compile for GPUs that are not there, and fit them."""

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks/kernel_resources.py"
SHARED_MEMORY = {"80": 166912, "90": 232448}  # bytes that a program can have, by capability
SPILLED = {"queries_back": 256, "sums_back": 256, "steep_back": 1600}  # bytes of stack, at most
FEW = "--capability 90 --width 64 --slots 64 --kernels states attend"
ALL = "--capability 90 --dtype bf16 fp16 --width 64 --slots 64"


@pytest.mark.parametrize(
    "options, interpreted, message",
    [
        ("", "1", "error: TRITON_INTERPRET must not be set, as Triton then interprets"),
        ("--width 257", "0", "argument --width: must be from 1 to 256, but is 257"),
        ("--slots 0", "0", "argument --slots: must be from 1 to 256, but is 0"),
    ],
)
def test_refusals(options, interpreted, message, monkeypatch, capsys):
    pytest.importorskip("triton")
    from fairseq_memattn.attention.ops.abc.triton import launch

    monkeypatch.setattr(launch, "INTERPRETED", interpreted == "1")
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(SCRIPT))["main"](options.split())
    assert message in f"{stop.value}{capsys.readouterr().err}"


def test_no_triton(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="kernel_resources.py: error: the package triton is not"):
        runpy.run_path(str(SCRIPT))


@pytest.mark.full
def test_the_kernels_fit(request):
    pytest.importorskip("triton")
    options = ALL if request.config.getoption("--full") else FEW
    # A process of its own, in which Triton compiles rather than interprets.
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "0"}
    command = [sys.executable, "benchmarks/kernel_resources.py", *options.split()]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    header, *rows = [line.split() for line in done.stdout.splitlines()]
    assert header[-4:] == ["products", "registers", "stack", "shared"]
    for row in rows:
        assert int(row[-1]) <= SHARED_MEMORY[row[0]], row
        if row[1] == "bf16":
            assert int(row[-2]) <= SPILLED.get(row[4], 0), row
    assert len(rows) >= 2
