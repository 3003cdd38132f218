"""The kernels compile for GPUs that are not there, and fit them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED_MEMORY = {"80": 166912, "90": 232448}  # bytes that a program can have, by capability
FEW = "--capability 90 --width 64 --slots 64 --kernels attend_queries"
ALL = "--dtype bf16 fp16 fp32 --width 16 64 128 256 --slots 16 64 128 256"


def test_the_kernels_fit(request):
    pytest.importorskip("triton")
    options = ALL if request.config.getoption("--full") else FEW
    # A process of its own, in which Triton compiles rather than interprets.
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "0"}
    command = [sys.executable, "benchmarks/kernel_resources.py", *options.split()]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    header, *rows = [line.split() for line in done.stdout.splitlines()]
    assert header[-3:] == ["registers", "stack", "shared"]
    for row in rows:
        assert int(row[-1]) <= SHARED_MEMORY[row[0]], row
        assert int(row[-2]) <= 32, row
    assert len(rows) >= 2
