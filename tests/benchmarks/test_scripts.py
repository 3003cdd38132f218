"""Every benchmark at tiny sizes: it runs, and its report holds together. No figure is tested."""

import json
import math
import os
from pathlib import Path

import pytest
from forked import run_forked
from full import full

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MODEL = "--layers 1 --width 16 --ffn 16 --heads 2 --vocabulary 20"
SCRIPTS = {
    "attention_training": "--lengths 16 32 --slots 4 --repeats 1 --warmup 0",
    "window_training": "--lengths 16 32 --slots 4 --repeats 1 --warmup 0",
    "global_memory": "--chunks 2 4 --chunk-size 8 --slots 4 --batch 1 --heads 2 --head-size 8 "
    "--masked-up-to 16 --repeats 1 --warmup 0",
    "decoding": f"{MODEL} --lengths 2 5 --sentences 8 --generator 4 --batch 2 --repeats 1",
    "document_length": f"{MODEL} --lengths 1 3 --words 4 --batch 2 --repeats 1 --warmup 0",
    "onnx_decoding": f"{MODEL} --lengths 3 6 --repeats 1 --warmup 0",
    "short_sentences": f"{MODEL} --length 5 --tokens 20 --repeats 2 --warmup 0",
    "figure1": f"{MODEL} --lengths 2 5 --batch 2 --repeats 1 --rfa 8 4",
    "encoder": f"{MODEL} --slots 4 8 --length 16 --batch 2 --repeats 1 --warmup 0",
    "context_parallel": "--length 32 --layers 1 --width 8 --heads 2 --slots 3 --repeats 1",
    "t5mem": f"{MODEL} --lengths 3 6 --length 4 --batch 2 --repeats 1 --warmup 0",
}

# Export a model and start processes, which takes longer than all others; with --full only.
SLOW = ("onnx_decoding", "context_parallel")


# One process for all. It is forked: importing torch and fairseq takes longer than the benchmarks.
RUN_ALL = """
import json, runpy, sys
folder, *commands = json.loads(sys.argv[1])
sys.path.insert(0, folder)
for sys.argv in commands:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def reports(request, tmp_path_factory):
    """The folder that the scripts wrote to."""
    everything = request.config.getoption("--full")
    folder = tmp_path_factory.mktemp("reports")
    commands = [
        [
            *(str(BENCHMARKS / f"{name}.py"), *options.split()),
            *("--threads", "1", "--device", "cpu", "--out", str(folder / name)),
        ]
        for name, options in SCRIPTS.items()
        if everything or name not in SLOW
    ]
    script = folder / "run_all.py"
    script.write_text(RUN_ALL, encoding="utf-8")
    argv = [str(script), json.dumps([str(BENCHMARKS), *commands])]
    done = run_forked(argv, None, None, dict(os.environ))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


def test_every_script_is_here():
    """All that have a `main`, but for those that want a trained model, a GPU or triton."""
    scripts = {path.stem for path in BENCHMARKS.glob("*.py") if "def main" in path.read_text()}
    assert scripts == set(SCRIPTS) | {
        *("document_decoding", "onnx_sentences", "gpu", "kernel_resources", "host_time")
    }


def numbers(report):
    if isinstance(report, dict | list):
        children = report.values() if isinstance(report, dict) else report
        return [number for child in children for number in numbers(child)]
    return [report] if isinstance(report, int | float) else []


@pytest.mark.full
@pytest.mark.parametrize("name", [full(x) if x in SLOW else x for x in SCRIPTS])
def test_report(reports, name):
    report = json.loads((reports / f"{name}.json").read_text())
    del report["setting"]
    assert numbers(report)
    assert all(math.isfinite(number) and number >= 0 for number in numbers(report))
    assert (reports / f"{name}.png").stat().st_size > 0


@pytest.mark.full
def test_state_of_the_last_step(reports):
    """Softmax attention keeps the source, and what was decoded before; memories do not grow."""
    rows = json.loads((reports / "figure1.json").read_text())["rows"]
    short, long = (row["state_bytes"] for row in rows)
    assert short["softmax"] / long["softmax"] == (2 + 1) / (5 + 4)
    assert all(short[name] == long[name] for name in ("abc", "rfa", "t2r"))


@pytest.mark.full
def test_peaks_of_chunks_and_of_masked_attention(reports):
    """What chunks hold does not grow with the square of the length; masked attention is cut off."""
    short, long = json.loads((reports / "global_memory.json").read_text())["rows"]
    assert long["peak_bytes"]["chunks"] < 2.2 * short["peak_bytes"]["chunks"]
    assert list(short["peak_bytes"]) == ["chunks", "masked"]
    assert list(long["peak_bytes"]) == ["chunks"]
    pairs = (4 + 16) ** 2 / (16 * (8 + 4) + 4 * (16 + 4))
    assert short["masked_over_chunks_allowed"] == pairs


@pytest.mark.full
def test_levels_and_peaks_of_the_encoder(reports):
    rows = json.loads((reports / "encoder.json").read_text())["rows"]
    levels = ["attention", "module", "encoder"]
    assert [(r["level"], r["slots"]) for r in rows] == [(x, n) for n in (4, 8) for x in levels]
    weights = 2 * 2 * 16 * 16 * 4  # of both sentences and heads
    for row in rows:
        # Explicit attention holds logits and weights at once.
        assert row["peak_bytes"]["explicit"] >= 2 * weights
    attention = rows[0]["peak_bytes"]
    assert attention["explicit"] - attention["sdpa"] >= weights
