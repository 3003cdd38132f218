"""recipes/gpu.py with a stand-in for the training, and once with tiny corpora and trainings."""

import json
import logging
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from forked import run_forked

ROOT = Path(__file__).parents[2]
FOUND = {"updates": 10, "words_per_second": 1234.5, "train_ppl": 256.5, "peak_gb": 17.5}


@pytest.fixture
def recipe(tmp_path, monkeypatch, capsys):
    """Runs the script as on two GPUs; returns its status, output and report, and all flags.

    `ends`: what a training with some flag does, before it writes what it has measured.
    """
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    monkeypatch.chdir(ROOT)
    script, calls = import_module("gpu"), []

    def train(flags, row, seconds, updates, validates):
        calls.append((" ".join(flags), updates, validates))
        for flag, end in run.ends.items():
            if flag in calls[-1][0]:
                end()
        row.write_text(json.dumps(FOUND | ({"valid_ppl": 128.25} if validates else {})))

    def run(*argv):
        argv = [*argv, "--data", str(tmp_path), "--work", str(tmp_path / "work")]
        status, report = script.main(argv), tmp_path / "work/results.json"
        runs = json.loads(report.read_text())["runs"] if report.exists() else []
        return status, capsys.readouterr(), runs, calls

    run.ends = {}
    run.script = script
    for corpus in ("wikitext-2", "multi30k-en-de"):
        (tmp_path / corpus).mkdir()
    monkeypatch.setitem(sys.modules, "gpu_training", SimpleNamespace(train=train))
    monkeypatch.setattr(script, "preparations", lambda args: [])
    monkeypatch.setattr(script, "compile_all", lambda runs, args, seconds: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Toy")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)}
    yield run
    logging.disable(logging.NOTSET)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_all_runs(recipe):
    status, (out, _), runs, calls = recipe()
    assert status == 0
    assert len(runs) == len(calls) == 12 + 4 + 1 + 4 + 2
    assert not any(run["result"] for run in runs)
    assert out.count("## ") == 5 and "Toy, torch" in out
    assert "| abc-32 | 512 | 1,234 | 17.5 | 10 | " in out
    assert all("--bf16" in flags and updates == 30 for flags, updates, _ in calls[:12])
    modes = ["fp16", "bf16", "amp", "memory-efficient-fp16"]
    for (flags, *_), mode in zip(calls[12:16], modes, strict=True):
        assert f"--{mode}" in flags and "--abc-causal-slots 32" in flags
    worlds = [flags.split("--distributed-world-size ")[-1][0] for flags, *_ in calls]
    assert "".join(worlds) == "1" * 16 + "2" + "1" * 6
    assert [validates for *_, validates in calls] == [False] * 17 + [True] * 6


def fail(error):
    def end():
        raise error

    return end


def test_how_trainings_end(recipe):
    """One that does not end as it should is a row of the table, and the others run."""
    recipe.ends = {
        "--arch transformer_lm": fail(torch.OutOfMemoryError("CUDA out of memory")),
        "window": fail(ValueError("a | b")),
        "slots 64": lambda: signal.setitimer(signal.ITIMER_REAL, 0.01) and None or time.sleep(9),
    }
    status, (out, _), runs, _ = recipe("--parts", "speed", "--lengths", "64")
    assert status == 0
    ends = {run["system"]: run["result"] for run in runs}
    assert ends == {
        "softmax": "out of memory",
        "abc-32": "",
        "abc-64": "out of time",
        "window-64": "failed: a | b",
    }
    assert "failed: a \\| b" in out


def test_a_script_that_is_stopped_has_what_there_is(recipe, tmp_path):
    recipe.ends = {"slots 64": lambda: os.kill(os.getpid(), signal.SIGTERM)}
    with pytest.raises(SystemExit) as stop:
        recipe("--parts", "speed", "--lengths", "64")
    assert stop.value.code == 143
    runs = json.loads((tmp_path / "work/results.json").read_text())["runs"]
    assert [run["result"] for run in runs] == ["", "", "not run", "not run"]


def test_it_needs_a_gpu_and_data(recipe, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    status, (_, err), *_ = recipe()
    message = "torch finds no GPU; recipes/gpu.py --tiny tries the script on the CPU"
    assert (status, err) == (2, f"error: {message}\n")
    (tmp_path / "wikitext-2").rmdir()
    status, (_, err), *_ = recipe("--tiny")
    assert err.startswith(f"error: there is no folder {tmp_path}/wikitext-2; --data is the folder")


@pytest.mark.full
def test_tiny_trainings(tmp_path):
    text = "".join(f"w{i} w{i // 2} the\n" for i in range(10_500))
    (tmp_path / "wikitext-2").mkdir()
    for part in ("train", "valid"):
        (tmp_path / f"wikitext-2/{part}.txt").write_text(text)
    folders = ["--data", str(tmp_path), "--work", str(tmp_path / "work")]
    argv = ["recipes/gpu.py", "--tiny", "--lengths", "16", "--parts", "wikitext-2"]
    done = run_forked([*argv, *folders], ROOT, None, dict(os.environ))
    assert done.returncode == 0, done.stderr[-2000:]
    runs = json.loads((tmp_path / "work/results.json").read_text())["runs"]
    assert [run["result"] for run in runs] == [""] * 4
    for run in runs:
        assert run["updates"] == 4 and run["words_per_second"] > 0
        assert min(run["train_ppl"], run["valid_ppl"]) > 1000
