"""recipes/run.py: the commands of all experiments, resuming, refusals, the table."""

import json
import re
import shlex
import sys
from argparse import Namespace
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from unittest import mock

import pytest
from omegaconf import OmegaConf

from fairseq_memattn.cli import main

ROOT = Path(__file__).parents[2]
# A program that logs its arguments, makes what it is asked for and prints scores.
PROGRAM = """#!{python}
import json, os, sys
from pathlib import Path
name, words = Path(sys.argv[0]).name, sys.argv[1:]
with open({calls!r}, "a") as file:
    file.write(json.dumps([name, *words]) + "\\n")
value = lambda flag: Path(words[words.index(flag) + 1])
if os.environ.get("FAILS") == name:
    sys.exit(3)
if name == "fairseq-train":
    (value("--save-dir") / "checkpoint_last.pt").touch()
if words[0] == "prepare":
    (value("--output") / "bin").mkdir(parents=True)
score = 30 if "softmax" in str(words) else 33 if "abc-8-8-2" in str(words) else 31
print(f"BLEU|nrefs:1 = {{score}}.00 60/40\\nchrF2|x = 50.00\\nppl 8.5")
"""


@pytest.fixture(scope="module", autouse=True)
def on_the_path():
    sys.path.insert(0, str(ROOT / "recipes"))
    yield
    sys.path.remove(str(ROOT / "recipes"))


@pytest.fixture
def recipe(tmp_path, monkeypatch, capsys):
    """Runs abc/multi30k with programs that pretend; returns status, output and the calls."""
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    for name in ("fairseq-train", "fairseq-generate", "fairseq-validate", "memattn"):
        text = PROGRAM.format(python=sys.executable, calls=str(calls))
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "data" / "multi30k-en-de").mkdir(parents=True)

    def run(*flags, systems="softmax abc-8-8", data="data"):
        calls.write_text("")
        monkeypatch.chdir(ROOT)
        places = ["--work", tmp_path / "work", "--data", tmp_path / data, "--bin", programs]
        argv = ["abc/multi30k", "--systems", *systems.split(), *places, *flags]
        status = import_module("run").main([*map(str, argv)])
        done = [json.loads(line) for line in calls.read_text().splitlines()]
        return status, capsys.readouterr(), [" ".join(call[:2]) for call in done]

    run.work = tmp_path / "work"
    return run


def commands(name):
    """All commands of an experiment's systems, with one seed."""
    experiments = import_module("runner.experiment")
    experiment = experiments.Experiment(name, {}, corpora="data", device=["--cpu"])
    stages = experiment.prepare()
    for system in experiment.default_systems():
        stages += experiment.run(system, 1)
    systems = experiment.default_systems()
    stages += experiment.stages(experiment.scope(systems=systems, seeds=[1]), "after")
    return [stage.command for stage in stages]


@pytest.fixture(scope="module")
def numbered():
    """The models of recipes/long_documents are registered, for this module alone."""
    import fairseq_memattn

    fairseq_memattn.register()
    from fairseq import models, utils

    folder = ROOT / "recipes" / "long_documents" / "numbered_sentences"
    with ExitStack() as stack:
        for name in [name for name in vars(models) if name.endswith("_REGISTRY")]:
            stack.enter_context(mock.patch.dict(getattr(models, name)))
        utils.import_user_module(Namespace(user_dir=str(folder)))
        yield


def test_memattn_archs_lists_models_that_need_a_symbol(numbered, capsys):
    assert main(["archs", "numbered*"]) == 0
    assert "\nnumbered_gmat_transformer " in capsys.readouterr().out


def test_the_commands_of_all_experiments_parse(numbered):
    """fairseq's parsers take them; no text is left that was to be filled in."""
    from fairseq import options
    from fairseq.models import ARCH_MODEL_REGISTRY

    parsers = {
        "fairseq-train": options.get_training_parser,
        "fairseq-generate": options.get_generation_parser,
        "fairseq-validate": options.get_validation_parser,
        "fairseq-preprocess": options.get_preprocessing_parser,
    }
    seen = set()
    for name in import_module("runner.experiment").paths():
        for command in commands(name):
            program, *words = command
            assert not re.search(r"[{}]|None|\['", " ".join(words)), command
            if program == "python":
                assert (ROOT / words[0]).is_file(), command
            flags = frozenset(
                re.sub("[0-9]+", "0", word) for word in words if word[:2] == "--" or "arch" in word
            )
            if program not in parsers or (program, flags) in seen:
                continue
            seen.add((program, flags))
            parser = parsers[program]()
            args = (
                options.parse_args_and_arch(parser, words) if program == "fairseq-train" else None
            )
            assert args is None or args.arch in ARCH_MODEL_REGISTRY
    assert len(seen) > 40


def test_stages_that_are_done_are_not_done_again(recipe, monkeypatch):
    status, out, calls = recipe("--seeds", "1", "2")
    assert status == 0 and calls[0] == "memattn prepare" and len(calls) == 1 + 2 * 2 * 4
    assert "| `abc-8-8` | 2 | 32.00 ± 1.41 | 8.50 ± 0.00 | 50.00 ± 0.00 | +2.00 ± 1.41 |" in out.out
    written = json.loads((recipe.work / "multi30k.json").read_text())
    assert written["scores"]["abc-8-8"]["BLEU"] == {"1": 31.0, "2": 33.0}
    assert (recipe.work / "multi30k.md").exists() and (recipe.work / "multi30k.png").exists()
    assert recipe("--seeds", "1", "2", "--device=--fp16", data="nowhere")[2] == []
    # What is made of a training that is repeated is repeated too, also if the first attempt fails.
    (recipe.work / "multi30k" / "abc-8-8-1" / "checkpoint_last.pt").unlink()
    monkeypatch.setenv("FAILS", "fairseq-generate")
    status, out, calls = recipe("--seeds", "1")
    assert (status, len(calls)) == (2, 2) and "generate ended with 3: fairseq-generate" in out.err
    monkeypatch.delenv("FAILS")
    assert [call.split()[0] for call in recipe("--seeds", "1")[2]] == [
        "fairseq-generate",
        "fairseq-validate",
        "memattn",
    ]


def test_other_settings_in_the_same_folder_are_refused(recipe):
    assert recipe("--seeds", "1", systems="softmax")[0] == 0
    status, out, calls = recipe("--seeds", "1", "--set", "updates=30", systems="softmax")
    assert (status, calls) == (2, [])
    assert "softmax-1 has train with --max-update 2000" in out.err and "--max-update 30" in out.err
    assert "give another --work" in out.err
    (recipe.work / "multi30k" / "softmax-1" / "stages.json").unlink()
    status, out, calls = recipe("--seeds", "1", systems="softmax")
    assert (status, calls) == (2, []) and "has another training" in out.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--set updates=0", "updates must be a whole number of 1 or more, but is 0"),
        ("--set length=2", "abc/multi30k has no setting length; it has updates"),
        ("--set updates", "--set takes NAME=VALUE"),
        ("--systems abc", "abc/multi30k has no system abc; its systems are softmax, <control>-"),
        ("--systems foo-8-8", "foo-8-8: the control must be one of abc, "),
        ("--systems workspace-8-8", "workspace-8-8: the control workspace has no causal form"),
        ("--systems local_global-1-8", "local_global needs two slots or more"),
        ("--data nowhere", "there is no nowhere/multi30k-en-de; --data is the folder"),
        ("--bin nowhere", "there is no fairseq-train in nowhere"),
    ],
)
def test_refused_in_one_sentence(flags, message, recipe):
    status, out, calls = recipe("--seeds", "1", *shlex.split(flags))
    assert (status, calls) == (2, []) and message in out.err and len(out.err.splitlines()) == 1
    assert not recipe.work.exists()


def test_checks_name_what_does_not_hold():
    experiments = import_module("runner.experiment")
    given = {"continued": "20", "transferred": "20"}
    one = experiments.Experiment("abc/conversion_translation", given, corpora="data", device=[])
    with pytest.raises(experiments.RecipeError, match="transferring is 20, continued is 20"):
        one.run("abc-8-8-transfer", 1)


def test_the_demo_trains_the_model_of_its_yaml():
    """Its flags have the values of discourse.yaml."""
    flags = next(words for words in commands("demo") if words[0] == "fairseq-train")
    given = {
        flag[2:].replace("-", "_"): value for flag, value in zip(flags, flags[1:], strict=False)
    }
    recipe = OmegaConf.to_container(OmegaConf.load(ROOT / "recipes/demo/discourse.yaml"))
    assert given["task"] == recipe["task"].pop("_name")
    assert given["arch"] == recipe["model"].pop("_name")
    assert [float(given["lr"])] == recipe["optimization"].pop("lr")
    parts = "common task model dataset criterion optimizer lr_scheduler optimization".split()
    settings = {name: value for part in parts for name, value in recipe[part].items()}
    for name in ("_name", "data", "source_lang", "target_lang"):
        settings.pop(name)
    for name, value in settings.items():
        assert value is True and name in given or given[name].replace(" ", "") == str(value), name


def test_when_a_stage_runs_does_not_depend_on_its_own_settings():
    """5 % of 60 updates are 3; the transfer has 2 of them, of which 5 % would be none."""
    experiments = import_module("runner.experiment")
    given = {"updates": "60"}
    one = experiments.Experiment("abc/conversion_translation", given, corpora="data", device=[])
    names = [stage.name for stage in one.run("abc-8-8-transfer", 1)]
    assert names == "train convert transfer tune generate perplexity score".split()


def test_the_pages_name_experiments_and_settings_that_exist():
    experiments = import_module("runner.experiment")
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/*/README.md")]
    found = set()
    for page in [*pages, ROOT / "benchmarks" / "README.md"]:
        for name, flags in re.findall(
            r"recipes/run.py ([a-z0-9_/]+)((?:[^\n`#]|\\\n)*)", page.read_text()
        ):
            found.add(name)
            experiments.Experiment(name, dict(re.findall(r"([a-z_]+)=[\"]?(\w+)", flags)))
    assert len(found) > 15


def test_help_and_list(capsys, monkeypatch):
    run = import_module("run")
    assert run.main([]) == 0
    assert "abc/multi30k  " in capsys.readouterr().out
    for name in import_module("runner.experiment").paths():
        assert run.main([name, "--help"]) == 0 and "settings, which" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("attention", "flags"),
    [
        ("mlp-8+window-4+softmax", "--abc-causal-layers window:2,mlp:8,window:4,softmax"),
        ("mlp-8-relu", "--abc-activation relu"),
        ("routed_gated-8-top4", "--abc-top-k 4"),
        ("local_mlp-8-near", "--abc-local-window 4"),
        ("linformer-8", "--abc-max-length 256"),
        ("mlp-8-only", "--abc-causal-layers mlp:8 --decoder-layers 2"),
        ("local_global-17", "--abc-stride 32 --abc-local-window 9"),
    ],
)
def test_the_flags_of_an_attention(attention, flags):
    experiments = import_module("runner.experiment")
    recall = experiments.Experiment("recall", {}, corpora="data", device=[])
    assert flags in " ".join(recall.run(f"needle-{attention}", 1)[0].command)


@pytest.mark.full
def test_an_experiment_from_end_to_end(tmp_path, monkeypatch, capfd):
    """With fairseq: two trainings, the second from the first, and a test."""
    monkeypatch.chdir(ROOT)
    settings = "short=1 updates=1 chunk=8 batch=1".split()
    argv = ["gmat/majority", "--systems", "32-1-chunks-2", "--seeds", "1", "--set", *settings]
    assert import_module("run").main([*argv, "--work", str(tmp_path)]) == 0, capfd.readouterr().err
    assert re.search(r"\| `32-1-chunks-2` \| 1 \| [0-9.]+ \|", capfd.readouterr().out)
    assert (tmp_path / "majority" / "32-1-chunks-2-1" / "train.log").exists()
