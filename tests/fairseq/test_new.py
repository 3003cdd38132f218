"""`memattn new`: what it writes works as it is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import COMMON, PLUGIN, ROOT, SIZES, lines_of, run
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from fairseq_memattn.cli import main


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """One of each, beside one another, and the corpus prepared."""
    folder = tmp_path_factory.mktemp("new")
    for kind, name in (("corpus", "talks"), ("recipe", "mine"), ("control", "my_control")):
        options = ["--data", str(folder / "talks/data")] if kind == "recipe" else []
        assert main(["new", kind, str(folder / name), *options]) == 0
    run(str(folder / "talks/prepare.py"))
    return folder


def test_a_corpus(written):
    for split, sentences in (("train", 220), ("valid", 25), ("test", 25)):
        for suffix in ("de", "en", "docid"):
            assert len(lines_of(written / f"talks/data/text/{split}.{suffix}")) == sentences
        assert len(list((written / "talks/data/bin").glob(f"{split}*.docids"))) == 1


@pytest.mark.full
def test_a_control_without_fairseq(written, monkeypatch):
    """The class is registered for PyTorch alone."""
    code = (
        "import sys; sys.modules['fairseq'] = None; import my_control; print(my_control.MyControl)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=written,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.startswith("<class"), done.stderr


@pytest.mark.full
def test_a_control(written, tmp_path):
    """Trained in a process of its own, and used again for translation."""
    data = written / "talks/data/bin"
    flags = [*COMMON, *SIZES, "--arch", "abc_my_control_transformer", "--abc-causal-slots", 4]
    flags[flags.index(str(PLUGIN))] = written / "my_control"
    limits = ["--max-update", 2, "--abc-keep", 0.3, "--save-dir", tmp_path]
    run("fairseq-train", data, *flags, *limits, fresh=True)
    decoding = ["--path", tmp_path / "checkpoint_last.pt", "--max-len-b", 3, "--cpu"]
    done = run(
        "fairseq-generate", data, "--user-dir", written / "my_control", *decoding, fresh=True
    )
    assert done.stdout.count("\nH-") == 25


@pytest.mark.full
def test_a_recipe(written):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {"PATH": path, "UPDATES": "2", "DEVICE": "--cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [written / "mine/run.sh"], env=os.environ | settings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    results = written / "mine/outputs/seed-1"
    assert (results / "score.txt").read_text().startswith("s-BLEU|")
    assert (results / "training.png").is_file()


@pytest.mark.parametrize("source", ["no", "on", "en"])
def test_a_language_that_yaml_reads_as_something_else(source, tmp_path):
    assert main(["new", "recipe", str(tmp_path / "x"), "--langs", source, "de"]) == 0
    task = OmegaConf.load(tmp_path / "x/training.yaml").task
    assert (task.source_lang, task.target_lang) == (source, "de")


@pytest.mark.parametrize("name", ["o'hara (1)", "a,b=c"])
def test_folders_with_characters_that_hydra_reads(name, tmp_path):
    folder = tmp_path / name
    assert main(["new", "recipe", str(folder), "--data", str(folder / "data")]) == 0
    script = (folder / "run.sh").read_text("utf-8")
    quoted = re.search(r"^quoted\(\) .*$", script, re.MULTILINE)[0]
    ask = f'{quoted}\nquoted "$1"'
    value = subprocess.run(["bash", "-c", ask, "x", folder], capture_output=True, text=True).stdout
    override = OverridesParser.create().parse_override(f"checkpoint.save_dir={value}")
    assert override.value() == str(folder)
    settings = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [folder / "run.sh"], env=os.environ | settings, capture_output=True, text=True
    )
    assert f"there is no {folder}/data/bin" in done.stderr


def test_the_data_of_a_recipe(tmp_path, monkeypatch, capsys):
    """The script runs in any folder; data that are there have the languages."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus/bin").mkdir(parents=True)
    for language in ("de", "en"):
        (tmp_path / f"corpus/bin/dict.{language}.txt").touch()
    assert main(["new", "recipe", "one"]) == 0
    assert f"DATA=${{DATA:-{tmp_path}/corpus}}" in Path("one/run.sh").read_text("utf-8")
    assert main(["new", "recipe", "two", "--langs", "fr", "en"]) == 1
    assert "--langs: corpus/bin has no dict.fr.txt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["corpus", "talks"], "FOLDER talks must be new or empty, but has files"),
        (["control", "mlp"], "FOLDER: there is a control mlp already"),
        (["recipe", "x", "--langs", "de;touch", "en"], "--langs must be such as en and zh_CN, but"),
        (["control", "queue"], "module, and queue is a module or a word of Python already"),
    ],
)
def test_errors(arguments, message, written, monkeypatch, capsys):
    monkeypatch.chdir(written)
    assert main(["new", *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not (written / "x").exists() and not (written / "mlp").exists()
