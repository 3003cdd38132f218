"""`gpu.py` at tiny sizes on the CPU: its report holds together. No figure is tested."""

import json
import os
import runpy
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from forked import run_forked

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu.py"
TINY = "--shapes 1x9x2x4 1x17x2x4 --slots 3 --step-lengths 4 8 --repeats 2 --dtype fp32"


def run(tmp_path, *options):
    out = tmp_path / "report"
    argv = [str(SCRIPT), *TINY.split(), "--device", "cpu", "--out", str(out), *options]
    done = run_forked(argv, None, None, dict(os.environ))
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(out.with_suffix(".json").read_text()), done


@pytest.mark.full
def test_report(tmp_path):
    report, done = run(tmp_path)
    assert report["complete"]
    assert [row["contender"] for row in report["correctness"]] == ["abc"]
    assert all(error < 1e-5 for row in report["correctness"] for error in row["errors"])
    settings = [(row["contender"], row["shape"], row["slots"]) for row in report["attention"]]
    shapes = ("1x9x2x4", "1x17x2x4")
    assert settings == [(name, shape, 3) for name in ("abc", "flash") for shape in shapes]
    for row in report["attention"]:
        assert row["forward_backward_ms"] >= row["forward_backward_host_ms"] > 0
    assert [row["length"] for row in report["steps"]] == [4, 8]
    assert "A decoding step" in done.stdout
    assert done.stderr.startswith("CPU: 220 s at most\nsteps, 4: ")


def test_what_a_gpu_alone_measures():
    """Replays and kernels, with a stand-in for torch.cuda."""
    script = runpy.run_path(str(SCRIPT))
    names = "CUDAGraph Event Stream current_stream synchronize reset_peak_memory_stats"
    cuda = {name: mock.MagicMock() for name in names.split()}
    cuda |= dict.fromkeys(("stream", "graph"), lambda *_: nullcontext())
    cuda |= dict.fromkeys(("memory_allocated", "max_memory_allocated"), lambda *_: 0)
    cuda["Event"].return_value.elapsed_time.return_value = 0.5
    kernels = [("void scan<int>", 3, 9.0), ("attend", 6, 33.0), ("cudaLaunchKernel", 9, 0.0)]
    profiler = mock.MagicMock()
    profiler.return_value.__enter__.return_value.key_averages.return_value = [
        SimpleNamespace(key=key, count=count, self_device_time_total=us)
        for key, count, us in kernels
    ]
    script["kernel_times"].__globals__["profile"] = profiler
    inputs = script["draw"](script["Shape"](1, 9, 2, 4), 3, torch.float32, torch.device("cpu"))
    found = {}
    with mock.patch.multiple(torch.cuda, **cuda):
        for more in script["measure"](script["flash"], inputs, 2, torch.device("cuda")):
            found |= more
    assert found["graph_ms"] == 0.5
    assert found["forward_peak_mib"] == 0
    assert list(found["kernels_us"].items()) == [("attend", [2, 11]), ("scan<int>", [1, 3])]
    assert cuda["CUDAGraph"].return_value.replay.call_count == 3


@pytest.mark.full
def test_one_contender_that_fails_ends_nothing(tmp_path):
    (tmp_path / "fla").mkdir()
    (tmp_path / "fla/__init__.py").touch()
    done = subprocess.run(
        [sys.executable, SCRIPT, *TINY.split(), "--device", "cpu", "--out", tmp_path / "report"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["complete"]
    (errors,) = {row["error"] for row in report["correctness"] if row["contender"] == "fla-abc"}
    assert errors == "ModuleNotFoundError: No module named 'fla.ops'"
    assert f"fla-gsa at 1x17x2x4, M 3: {errors}" in done.stdout


@pytest.mark.full
def test_a_budget_that_is_spent(tmp_path):
    report, done = run(tmp_path, "--budget", "0")
    assert not report["complete"]
    assert report["attention"] == []
    assert "out of time; the report has what was measured" in done.stderr


SENTENCES = {
    "": "gpu.py: error: torch finds no GPU; --device cpu measures small sizes on the CPU",
    "--device cuda": "gpu.py: error: torch finds no GPU; --device cpu measures small sizes on the ",
    "--device cuda:1": "gpu.py: error: torch finds no GPU; ",
    "--device gpu": "gpu.py: error: --device must be cuda, cuda:N or cpu, but is gpu",
}


@pytest.mark.parametrize("options, message", SENTENCES.items())
def test_no_gpu(options, message):
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = run_forked([str(SCRIPT), *options.split()], None, None, environ)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "options, message",
    [
        ("--shapes 8x0x8x64", "--shapes: must be BxTxHxD, four numbers, but is '8x0x8x64'"),
        ("--device cpu --slots 8 0", "--slots must be at least 1, but is 0"),
        ("--device cpu --step-lengths -1", "--step-lengths must be at least 1, but is -1"),
        ("--device cpu --contenders abc flex", "--contenders: flex needs a GPU"),
        (
            "--device cpu --contenders fla-abc",
            "--contenders: fla-abc needs the package flash-linear-attention",
        ),
        ("--device cpu --repeats 0", "--repeats must be at least 1, but is 0"),
    ],
)
def test_wrong_values(options, message):
    done = run_forked([str(SCRIPT), *options.split()], None, None, dict(os.environ))
    assert done.returncode == 2
    assert message in done.stderr


def test_help():
    done = run_forked([str(SCRIPT), "--help"], None, None, dict(os.environ))
    text = " ".join(done.stdout.split())
    assert "--shapes BxTxHxD [BxTxHxD ...]" in text
    assert "(default 64; on a CPU 32 64)" in text
    assert "None" not in text
