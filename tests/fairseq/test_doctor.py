"""`memattn doctor`: what is missing or broken is said, with the command that installs it."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from fairseq_memattn.cli import main
from fairseq_memattn.cli.commands import doctor

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))[
    "project"
]


@pytest.fixture
def quick(monkeypatch):
    """Without the training, which takes seconds."""
    monkeypatch.setattr(doctor, "training", lambda: "trained")


def findings(tmp_path, status):
    """By name, and what the command must return."""
    path = tmp_path / "findings.json"
    assert main(["doctor", "--json", str(path)]) == status
    return {one["what"]: one for one in json.loads(path.read_text())}


@pytest.mark.full
def test_this_installation_works(tmp_path, capsys):
    found = findings(tmp_path, 0)
    text = capsys.readouterr().out
    for name in ("torch", "fairseq", "layer, cpu", "training", "sacrebleu", "transformers"):
        assert found[name]["status"] == doctor.OK
        assert re.search(rf"^{name} +ok ", text, re.MULTILINE)
    assert " architectures" in found["fairseq"]["found"]
    assert "two updates of abc_mlp_transformer_lm" in found["training"]["found"]


def test_missing_packages(quick, tmp_path, monkeypatch, capsys):
    for module in ("sentencepiece", "onnxruntime", "triton"):
        monkeypatch.setitem(sys.modules, module, None)
    found = findings(tmp_path, 1)
    assert found["sentencepiece"]["status"] == doctor.MISSING
    assert {found[name]["status"] for name in ("onnxruntime", "triton")} == {doctor.OPTIONAL}
    printed = capsys.readouterr()
    assert "pip install 'sentencepiece>=0.2.3'" in printed.out
    assert "for export --onnx: pip install 'fairseq-memattn[onnx]'" in printed.out
    assert printed.err == "memattn doctor: error: missing or not working: sentencepiece\n"


@pytest.mark.full
def test_wrong_results_and_a_training_that_fails(tmp_path, monkeypatch):
    exact = doctor.causal

    def causal(attend, inputs):
        return (
            [part * 1.01 for part in exact(attend, inputs)]
            if inputs[0].dtype.itemsize == 4
            else exact(attend, inputs)
        )

    monkeypatch.setattr(doctor, "causal", causal)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    found = findings(tmp_path, 1)
    assert re.fullmatch(
        r"ArithmeticError: differs by \S+ from its slow form", found["layer, cpu"]["found"]
    )
    message = "RuntimeError: fairseq-preprocess ends with status 1: no message"
    assert found["training"]["found"] == message


def test_it_knows_the_packages_of_the_project():
    extras = {
        name: PROJECT["optional-dependencies"][name] for name in ("data", "transformers", "onnx")
    }
    for known, needed in (
        (doctor.REQUIRED, PROJECT["dependencies"]),
        *(([p for p in doctor.IN_EXTRAS if p.extra == name], extras[name]) for name in extras),
    ):
        assert sorted(map(doctor.requirement, known)) == sorted(n.partition(";")[0] for n in needed)
