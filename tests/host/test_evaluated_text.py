"""What fairseq reads from files and options is not run.

Every hostile value would create a marker file.
"""

import ast
import importlib
import re
import shlex
import sys
import warnings
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from forked import run_forked
from full import full, others_in_full
from harness import LANGUAGE_MODEL, PLUGGED, SOFTMAX, attempt, environment, train

from fairseq_memattn.host import checkpoints
from fairseq_memattn.host.safety.literals import LiteralError
from fairseq_memattn.models.abc_transformer import ABCTransformer

VALIDATION = shlex.split("--task translation --max-tokens 1000")
VALIDATE = shlex.join(["fairseq-validate", *VALIDATION])
EVALUATES = {"eval", "exec", "compile", "__import__"}
# Not of an object, as in `model.eval()`.
NAMED = re.compile(rf"(?<![\w.])({'|'.join(EVALUATES)})\b|builtins")


def sources():
    """The modules of fairseq and its commands, but for the examples, which no command imports."""
    for package in ("fairseq", "fairseq_cli"):
        folder = Path(find_spec(package).submodule_search_locations[0])
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if parts[0] != "examples":
                name = ".".join((package, *(part for part in parts if part != "__init__")))
                yield name, path


def uses(path):
    """The builtins that run code and that a source file names or looks up."""
    text = path.read_text(encoding="utf-8")
    if not NAMED.search(text):  # which takes less time than to parse it
        return
    with warnings.catch_warnings(action="ignore"):  # about fairseq's escape sequences
        tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in EVALUATES | {"__builtins__"}:
            yield node.id
        if isinstance(node, ast.Import) and any(name.name == "builtins" for name in node.names):
            yield "builtins"
        if isinstance(node, ast.ImportFrom) and node.module == "builtins":
            yield "builtins"


EVALUATING = {name: used for name, path in sources() if (used := set(uses(path)))}


def test_fairseq_runs_code_in_no_other_way():
    assert len(EVALUATING) > 15 and "fairseq.utils" in EVALUATING
    assert set().union(*EVALUATING.values()) == {"eval"}


def test_every_module_that_evaluates_reads_literals():
    for name in EVALUATING:
        try:
            module = importlib.import_module(name)
        except ImportError:  # of a package that is not installed
            continue
        assert vars(module)["eval"]("[(512, 3)] * 2") == [(512, 3), (512, 3)]
        with pytest.raises(LiteralError):
            vars(module)["eval"]("print()")


def test_what_is_imported_later_reads_literals(tmp_path):
    """In a fresh process, before and after registration; Python's own eval stays."""
    program = f"""
import sys
import fairseq.utils
import fairseq_memattn
fairseq_memattn.register()
modules = {list(EVALUATING)}
later = [name for name in modules if name not in sys.modules]
assert "fairseq_cli.eval_lm" in later and "fairseq.utils" not in later
for name in modules:
    try:
        module = __import__(name, fromlist=["eval"])
    except ImportError:
        continue
    try:
        module.eval("print('run')")
    except ValueError as error:
        assert "nothing of it was run" in str(error)
assert eval("len('ab')") == 2
"""
    script = tmp_path / "script.py"
    script.write_text(program, encoding="utf-8")
    done = attempt(str(script), fresh=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.fixture
def code(marker):
    return f"[5, __import__('pathlib').Path({str(marker)!r}).touch()]"


def hostile(trained, path, part, option, value, in_args=False):
    """A copy of a checkpoint with another value of an option, in `cfg` or, as of old, in `args`."""
    state = torch.load(trained.checkpoint, weights_only=False)
    options = state["cfg"][part]
    options = vars(options) if isinstance(options, Namespace) else dict(options)
    options = {**options, option: value}
    state["cfg"][part] = Namespace(**options) if part == "model" else options
    if in_args:
        sections = ("common", "task", "optimization", "dataset", "checkpoint", "model")
        merged = {}
        for section in sections:
            fields = state["cfg"][section]
            merged |= vars(fields) if isinstance(fields, Namespace) else dict(fields)
        task = state["cfg"]["task"]["_name"]
        merged |= {"task": task, "criterion": "cross_entropy", "optimizer": "adam"}
        state["args"], state["cfg"] = Namespace(**merged), None
    torch.save(state, path)
    return path


@pytest.fixture(scope="module")
def fairseq_lm(monolingual, once):
    """fairseq's own language model."""
    flags = " ".join(map(str, LANGUAGE_MODEL)).replace("abc_mlp_transformer_lm", "transformer_lm")
    flags = flags.replace("--abc-causal-slots 4", "--max-update 1")
    return once("fairseq_lm", lambda folder: train(monolingual, folder, *shlex.split(flags)))


@pytest.fixture(params=[full("softmax"), "translator"])
def any_translator(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=[full("fairseq_lm"), "language_model"])
def any_lm(request):
    return request.getfixturevalue(request.param)


def refusal(done):
    """The one sentence of a command that has refused an option."""
    assert done.returncode == 1
    (sentence,) = done.stderr.strip().splitlines()[-1:]
    assert "Traceback" not in done.stderr
    assert " is not a literal: " in sentence
    assert sentence.endswith("; nothing of it was run")


CUTOFF = "adaptive_softmax_cutoff"


@pytest.mark.parametrize(
    "command, in_args",
    [
        ("fairseq-generate", False),
        ("fairseq-interactive", False),
        (VALIDATE, True),
        full("fairseq-generate", True),
        full(VALIDATE, False),
    ],
)
def test_translation(command, in_args, any_translator, code, tmp_path):
    path = hostile(any_translator, tmp_path / "x.pt", "model", CUTOFF, code, in_args)
    command, *task = command.split()
    refusal(attempt(command, any_translator.data, *task, "--path", path, *PLUGGED, stdin="a b\n"))


@pytest.mark.parametrize("option", [CUTOFF, "character_filters"])
def test_language_models(option, any_lm, code, tmp_path):
    path = hostile(any_lm, tmp_path / "x.pt", "model", option, code)
    if option == "character_filters":
        state = torch.load(path, weights_only=False)
        state["cfg"]["model"].character_embeddings = True
        torch.save(state, path)
    done = attempt("fairseq-eval-lm", any_lm.data, "--path", path, *PLUGGED)
    refusal(done)


def test_convert(any_translator, code, tmp_path):
    path = hostile(any_translator, tmp_path / "x.pt", "model", CUTOFF, code)
    flags = ["--arch", "abc_window_transformer", "--output", tmp_path / "new.pt"]
    done = attempt("memattn", "convert", any_translator.data, "--path", path, *flags)
    refusal(done)
    assert not (tmp_path / "new.pt").exists()


def test_from_pretrained(any_translator, code, tmp_path):
    hostile(any_translator, tmp_path / "x.pt", "model", CUTOFF, code)
    with pytest.raises(LiteralError, match="is not a literal: "):
        ABCTransformer.from_pretrained(str(tmp_path), "x.pt", str(any_translator.data))


def test_the_criterion_of_a_checkpoint(softmax, code, tmp_path):
    """Which validation builds."""
    state = torch.load(softmax.checkpoint, weights_only=False)
    state["cfg"]["criterion"] = {**dict(state["cfg"]["criterion"]), "_name": "ctc"}
    state["cfg"]["criterion"]["wer_args"] = code
    state["cfg"]["task"]["post_process"] = "letter"
    torch.save(state, tmp_path / "x.pt")
    flags = [*VALIDATION, "--path", tmp_path / "x.pt"]
    done = attempt("fairseq-validate", softmax.data, *flags, *PLUGGED)
    refusal(done)


OVERRIDES = (*("fairseq-generate", "fairseq-interactive", "fairseq-eval-lm"), VALIDATE)


@pytest.mark.parametrize("command", others_in_full(OVERRIDES, ["fairseq-interactive"]))
def test_model_overrides(command, softmax, fairseq_lm, code, tmp_path):
    model = fairseq_lm if command == "fairseq-eval-lm" else softmax
    command, *task = command.split()
    flags = [*task, "--path", model.checkpoint, "--model-overrides", code]
    done = attempt(command, model.data, *flags, *PLUGGED, stdin="a\n")
    refusal(done)


@pytest.mark.parametrize("flags", ["--adam-betas", full("--optimizer adamax --adamax-betas")])
def test_optimisers(flags, softmax, code, tmp_path):
    done = attempt(
        "fairseq-train", softmax.data, *SOFTMAX, *flags.split(), code, "--save-dir", tmp_path
    )
    refusal(done)


def test_a_command_that_runs_as_a_script(softmax, code, tmp_path):
    """`python -m fairseq_cli.validate`, whose module is `__main__`."""
    script = tmp_path / "fairseq-validate"
    run = "runpy.run_module('fairseq_cli.validate', run_name='__main__', alter_sys=True)"
    script.write_text(f"import runpy\n{run}\n", encoding="utf-8")
    flags = [*VALIDATION, "--path", softmax.checkpoint, "--model-overrides", code]
    argv = [str(script), str(softmax.data), *PLUGGED, *map(str, flags)]
    done = run_forked(argv, None, None, environment())
    refusal(done)


def test_a_folder_that_a_checkpoint_names_is_not_imported(any_translator, marker, tmp_path):
    """A checkpoint's `user_dir`: only the command's is imported."""
    folder = tmp_path / "hostile_folder"
    folder.mkdir()
    (folder / "__init__.py").write_text(f"open({str(marker)!r}, 'w')\n")
    path = hostile(any_translator, tmp_path / "x.pt", "common", "user_dir", str(folder))
    flags = ["--path", path, *PLUGGED, "--required-batch-size-multiple", 1]
    for command, *task in (["fairseq-generate"], ["fairseq-validate", *VALIDATION]):
        assert attempt(command, any_translator.data, *task, *flags).returncode == 0
    ABCTransformer.from_pretrained(str(tmp_path), "x.pt", str(any_translator.data))
    checkpoints.read_checkpoint(path)
    assert "hostile_folder" not in sys.modules
