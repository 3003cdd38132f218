"""MetricX-24 (Juraska et al., 2024), computed by its own program, `metricx24.predict`.

A score is an error from 0 to 25. The program is in github.com/google-research/metricx.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from fairseq_memattn.evaluation.comet_score import Texts
from fairseq_memattn.files import parse_json, read_lines

WORST = 25.0
TOKENIZER = "google/mt5-xl"
MOST_TOKENS = 1536  # with which the models were trained


def require_metricx() -> None:
    """Raises ImportError, which names --metricx, if the program is not there."""
    if not find_spec("metricx24"):
        raise ImportError(
            "--metricx needs the package metricx24: put a clone of "
            "github.com/google-research/metricx on PYTHONPATH and install its requirements"
        )


def metricx_scores(model: str, tokenizer: str, texts: Texts) -> list[float]:
    """A score for each text. Raises ValueError if the program fails, with its last line."""
    keys = ("source", "hypothesis", "reference")
    rows = [json.dumps(dict(zip(keys, row, strict=True))) for row in zip(*texts, strict=True)]
    with TemporaryDirectory() as folder:
        given, made = Path(folder, "input.jsonl"), Path(folder, "output.jsonl")
        given.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        command = [sys.executable, "-m", "metricx24.predict", "--tokenizer", tokenizer]
        command += ["--model_name_or_path", model, "--max_input_length", str(MOST_TOKENS)]
        command += ["--batch_size", "1", "--input_file", str(given), "--output_file", str(made)]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise ValueError(f"--metricx {model}: {done.stderr.strip().rpartition(chr(10))[2]}")
        return [float(parse_json(line, str(made))["prediction"]) for line in read_lines(made)]
