"""`host_time.py`: the kernels are compiled and launched, and none runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/host_time.py"


@pytest.mark.full
def test_table():
    pytest.importorskip("triton")
    options = "--repeats 1 --warmup 0 --calls 1 --functions 3"
    # A process of its own, in which Triton compiles rather than interprets.
    done = subprocess.run(
        [sys.executable, SCRIPT, *options.split()],
        env=os.environ | {"TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    launches, header, *rows = done.stdout.splitlines()
    assert int(launches.split()[0]) > 0
    assert header.split() == "host, us forward and backward".split()
    for row in rows[:3]:
        forward, both = map(int, re.findall(r"\d+", row))
        assert forward > 0 and both > 0, row
    assert len(rows) == 3 + 1 + 3
