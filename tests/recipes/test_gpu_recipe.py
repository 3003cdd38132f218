"""recipes/gpu.py with programs that pretend to train on two GPUs, and the table of its logs."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START = "INFO | rank   0: capabilities =  9.0  ; total memory = 80.000 GB ; name = Toy\n"
INTERVAL = '"loss": "8", "ppl": "256.5", "wps": "{wps}", "num_updates": "{updates}"'
VALID = 'INFO | valid | {"epoch": 1, "valid_loss": "7", "valid_ppl": "128.25"}\n'


def interval(wps, updates, free):
    values = INTERVAL.format(wps=wps, updates=updates)
    return f'INFO | train_inner | {{"epoch": 1, {values}, "gb_free": "{free}"}}\n'


@pytest.fixture
def tabulate(tmp_path, monkeypatch, capsys):
    """The report and the page of runs: part, system and length, log, and status of each."""
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    table = import_module("gpu_table")

    def write(runs):
        rows = []
        for (part, system, length), log, status in runs:
            path = tmp_path / f"{part}-{system}-{length or '-'}.log"
            if log is not None:
                path.write_text(log)
            if status is not None:
                path.with_suffix(".status").write_text(f"{status} 12\n")
            rows.append(table.read_run(tmp_path, part, system, length))
        table.write("Toy, torch 9", rows, tmp_path / "results")
        out = capsys.readouterr().out
        assert (tmp_path / "results.md").read_text() == out.removeprefix("\n").rstrip() + "\n"
        return json.loads((tmp_path / "results.json").read_text()), out.splitlines()

    return write


def test_table(tabulate):
    slow_start = START + interval(10, 5, 70) + interval(90.5, 10, 62.5) + interval(99.5, 15, 63)
    report, lines = tabulate(
        [
            (("speed", "softmax", 512), slow_start, 0),
            (("speed", "abc-32", 512), START + interval(1234, 5, 70), 124),
            (("multi30k", "softmax", None), START + interval(5, 5, 79) + VALID, 0),
        ]
    )
    assert report["machine"] == "Toy, torch 9"
    assert report["runs"] == [
        {
            "part": "speed",
            "system": "softmax",
            "length": 512,
            "seconds": 12,
            "words_per_second": 95.0,  # without the first interval
            "updates": 15,
            "train_ppl": 256.5,
            "peak_gb": 17.5,
            "result": "",
        },
        {
            "part": "speed",
            "system": "abc-32",
            "length": 512,
            "seconds": 12,
            "words_per_second": 1234.0,
            "updates": 5,
            "train_ppl": 256.5,
            "peak_gb": 10.0,
            "result": "out of time",
        },
        {
            "part": "multi30k",
            "system": "softmax",
            "seconds": 12,
            "words_per_second": 5.0,
            "updates": 5,
            "train_ppl": 256.5,
            "peak_gb": 1.0,
            "valid_ppl": 128.25,
            "result": "",
        },
    ]
    assert "| softmax | 512 | 95.0 | 17.5 | 15 | 12 | 256.5 |  |" in lines
    assert "| abc-32 | 512 | 1,234 | 10.0 | 5 | 12 | 256.5 | out of time |" in lines
    assert "| softmax | 5.0 | 1.0 | 5 | 12 | 256.5 | 128.2 |" in lines
    assert lines[-2] == "1 of 3 runs had too little time; raise --budget, the seconds for all."


EPOCH = 'INFO | train | {"epoch": 1, "train_ppl": "300.5", "train_num_updates": "3"}\n'


def test_the_training_perplexity_is_that_of_the_last_interval(tabulate):
    log = START + interval(10, 2, 70) + VALID + EPOCH
    report, _ = tabulate([(("wikitext-2", "softmax", 512), log, 0)])
    run = report["runs"][0]
    assert (run["updates"], run["train_ppl"], run["valid_ppl"]) == (3, 256.5, 128.25)


def test_a_run_that_ends_within_its_first_interval(tabulate):
    report, _ = tabulate([(("wikitext-2", "softmax", 512), START + VALID + EPOCH, 0)])
    run = report["runs"][0]
    assert (run["updates"], run["train_ppl"], run["valid_ppl"]) == (3, 300.5, 128.25)
    report, _ = tabulate([(("speed", "softmax", 8192), START + interval("0.0", 1, 70), 0)])
    assert report["runs"][0]["updates"] == 1 and "words_per_second" not in report["runs"][0]


@pytest.mark.parametrize(
    ("log", "status", "result"),
    [
        ("error: --fp16 needs a GPU | or none\n", 2, "failed: error: --fp16 needs a GPU | or none"),
        ("", 1, "failed: exit status 1"),
        ("WARNING | OOM: Ran out of memory with exception: CUDA out\n", 0, "out of memory"),
        ("torch.OutOfMemoryError: CUDA out of memory.\n", 1, "out of memory"),
        (START, None, "interrupted"),
        (None, None, "not run"),
    ],
)
def test_what_a_run_ended_with(tabulate, log, status, result):
    report, lines = tabulate([(("modes", "fp16", 512), log, status)])
    assert report["runs"][0]["result"] == result
    rows = [line for line in lines if line.startswith("| abc-32 ") or line.startswith("| fp16 ")]
    assert result.replace("|", "\\|") in rows[-1]
    assert "raise --budget" not in lines[-2]


PYTHON = """#!/bin/bash
case $1 in
  -W) echo "$GPUS Toy, torch 9" ;;
esac
"""
TRAIN = f"""#!/bin/bash
echo "$*" >> "$CALLS"
cat << 'END'
{START}{interval(10, 5, 70)}{VALID}
END
if [[ " $* " == *" $HANG "* && " $* " != *" --max-update 1 "* ]]; then sleep 60; fi
"""


@pytest.fixture
def settings(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in [
        ("python", PYTHON),
        ("memattn", "#!/bin/bash\n"),
        ("fairseq-train", TRAIN),
        ("fairseq-preprocess", '#!/bin/bash\nmkdir -p "$WORK/wikitext-2"; echo "Namespace()"\n'),
    ]:
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for corpus in ("wikitext-2", "multi30k-en-de"):
        (tmp_path / "data" / corpus).mkdir(parents=True)
    places = {"BIN": programs, "DATA": tmp_path / "data", "WORK": tmp_path / "work"}
    return {
        **os.environ,
        **{name: str(path) for name, path in places.items()},
        "CALLS": str(tmp_path / "calls"),
        "GPUS": "2",
        "HANG": "never",
    }


def start(settings, *arguments):
    places = [f"--{name.lower()}={settings[name]}" for name in ("BIN", "DATA", "WORK")]
    return subprocess.Popen(
        [sys.executable, "recipes/gpu.py", *places, *arguments],
        cwd=ROOT,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def results(settings):
    report = json.loads(Path(settings["WORK"], "results.json").read_text())
    return {f"{run['part']} {run['system']} {run.get('length', '')}": run for run in report["runs"]}


def calls_of(settings):
    """Of fairseq-train: those of the table, and those that compile kernels before."""
    calls = Path(settings["CALLS"]).read_text().splitlines()
    compiling = [call for call in calls if " --max-update 1 " in call]
    return [call for call in calls if call not in compiling], compiling


def test_all_runs(settings):
    script = start(settings)
    out, err = script.communicate()
    assert script.returncode == 0, err
    runs = results(settings)
    assert len(runs) == 12 + 4 + 1 + 4 + 2
    assert not any(run["result"] for run in runs.values())
    assert "## Words a second and peak memory" in out
    calls, compiling = calls_of(settings)
    assert len(calls) == len(runs)
    for call in calls[:12]:
        assert "--bf16" in call
    modes = ["fp16", "bf16", "amp", "memory-efficient-fp16"]
    for call, mode in zip(calls[12:16], modes, strict=True):
        assert f"--{mode}" in call and "--abc-causal-slots 32" in call
    worlds = [call.split("--distributed-world-size ")[-1][0] for call in calls]
    assert "".join(worlds) == "1" * 16 + "2" + "1" * 6
    assert all(" --stop-time-hours 0.0" in call for call in calls)
    # Both sizes of ABC at each length, each form of half precision but --bf16, and translation.
    assert len(compiling) == len(set(compiling)) == 2 * 3 + 3 + 1
    assert all(" --abc-" in call and " --disable-validation" in call for call in compiling)


def test_a_script_that_is_stopped_has_what_there_is(settings):
    began = time.monotonic()
    script = start({**settings, "HANG": "--abc-causal-slots 64"})
    log = Path(settings["WORK"], "runs", "speed-abc-64-512.log")
    while not log.exists() or not log.stat().st_size:
        assert script.poll() is None and time.monotonic() - began < 30
        time.sleep(0.02)
    script.send_signal(signal.SIGTERM)
    out, _ = script.communicate()
    assert time.monotonic() - began < 30
    assert script.returncode == 143
    runs = results(settings)
    assert runs["speed abc-32 512"]["result"] == ""
    assert runs["speed abc-64 512"]["result"] == "interrupted"
    assert runs["speed abc-64 512"]["words_per_second"] == 10
    assert runs["multi30k softmax "]["result"] == "not run"
    assert "| abc-64 | 512 | 10.0 |" in out


def test_some_parts_and_lengths(settings):
    Path(settings["DATA"], "multi30k-en-de").rmdir()  # which these parts do without
    script = start(settings, *"--parts speed modes --lengths 4096 1024".split())
    _, err = script.communicate()
    assert script.returncode == 0, err
    runs = results(settings)
    assert len(runs) == 8 + 4
    assert {run["length"] for run in runs.values() if run["part"] == "speed"} == {4096, 1024}


@pytest.mark.parametrize(
    "given, message",
    [
        ("--parts processes", "--parts processes has nothing that runs here"),
        ("--lengths 16384 512", "--tokens must be at least 16384, the longest input"),
        ("--size 100", "--size must be a multiple of 8, the heads"),
        ("--budget 0", "--budget must be 1 or more"),
        ("--data nowhere", "there is no folder nowhere/wikitext-2; --data is the folder"),
    ],
)
def test_wrong_settings(given, message, settings):
    script = start({**settings, "GPUS": "1"}, *given.split())
    out, err = script.communicate()
    assert script.returncode == 2 and not out
    assert err.startswith(f"error: {message}")


def test_it_needs_a_gpu(settings):
    script = start({**settings, "GPUS": "0"})
    out, err = script.communicate()
    assert script.returncode == 2 and not out
    assert err == "error: torch finds no GPU; recipes/gpu.py --tiny tries the script on the CPU\n"


def test_half_precision_is_skipped_on_a_cpu(settings):
    script = start({**settings, "GPUS": "0"}, "--tiny")
    out, err = script.communicate()
    assert script.returncode == 0 and not err
    assert out.startswith("half precision needs a GPU, and is not tried\npreparing the data; ")
    assert "Namespace" not in out
    assert "Namespace" in Path(settings["WORK"], "runs", "data.log").read_text()
    assert len(results(settings)) == 8 + 4 + 2
    assert all("--cpu" in call for call in Path(settings["CALLS"]).read_text().splitlines())
