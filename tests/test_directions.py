"""Which parts of the package may import which, read from the import statements."""

import ast
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "fairseq_memattn"
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / PACKAGE).rglob("*.py"))
}

# The parts of the package, and the other parts that each may import, in functions too.
LIBRARY = {"attention", "attention.ops", "attention.controls", "attention.nn"}
MAY_IMPORT = {
    "errors": set(),
    "excepthook": {"errors", "hydra_checks", "path_checks"},
    "hydra_checks": {"errors"},
    "checksums": {"archive_limits"},
    "literals": {"errors"},
    "archive_limits": {"errors"},
    "untrusted": {"errors", "literals", "archive_limits"},
    "processes": {"errors"},
    "command_line": {"errors"},
    "config_checks": {"errors", "literals", "model_options", "model_checks", "path_checks"},
    "model_checks": {"errors", "literals", "model_options", "path_checks"},
    "path_checks": {"errors"},
    "model_options": {"errors"},
    "architectures": {"attention.controls"},
    "data_files": {"errors", "path_checks", "white_space"},
    "sample_limits": {"errors"},
    "failed_training": {"errors"},
    "finished_training": set(),
    "bleu_warnings": {"evaluation"},
    "text_checks": {"errors"},
    "generation_limits": {"errors"},
    "bleu_note": set(),
    "workers": set(),
    "white_space": set(),
    "compat": {
        *("errors", "excepthook", "untrusted", "processes", "command_line", "config_checks"),
        *("data_files", "sample_limits", "failed_training", "text_checks", "generation_limits"),
        *("bleu_note", "bleu_warnings", "model_checks", "finished_training", "checksums"),
        "workers",
    },
    "attention.ops": set(),
    "attention.controls": {"attention.ops"},
    "attention.nn": {"attention.ops", "attention.controls"},
    "attention": LIBRARY,
    "modules": LIBRARY | {"errors"},
    "models": LIBRARY | {"modules", "errors", "compat"},
    "evaluation": set(),
    "data": {"errors", "evaluation"},
    # The features: none imports another, a task or the registration of a model. A store of
    # compressed memories records the options of the model, so it reads models.gmat_config.
    "documents": {
        "attention.ops",
        "attention.nn",
        "modules",
        "data",
        "errors",
        "generation_limits",
    },
    "qa": {"data", "errors", "evaluation"},
    "perplexity": {"data", "errors"},
    "compression": {"data", "errors", "modules", "models"},
    # Of documents it takes what needs no fairseq: see test_without_fairseq.
    "transformers": LIBRARY | {"documents", "data", "errors", "white_space"},
    "onnx": LIBRARY | {"transformers", "errors"},
    "export": {
        *("transformers", "models", "modules", "tasks", "data", "errors", "compat"),
        *LIBRARY,
    },
    "criterions": {"attention.nn", "modules", "qa", "errors", "compat"},
    "tasks": {
        *("documents", "qa", "data", "evaluation", "modules", "criterions", "errors", "compat"),
        "workers",
    },
    "cli": {
        *("documents", "qa", "perplexity", "compression", "data", "evaluation", "modules"),
        *("models", "tasks", "errors", "compat", "archive_limits", "checksums", PACKAGE),
        *("export", "transformers", "onnx", "architectures", "attention", "attention.controls"),
        *("command_line", "model_checks", "white_space"),
    },
    PACKAGE: set(),
}

# File names that occur more than once.
SHARED_NAMES = {
    "__init__.py": "a package",
    "naive.py": "the reference of an operation",
    "chunked.py": "the fast form of an operation",
    "attention.py": "the one form of an operation",
    "checks.py": "the argument checks of attention.ops and of attention.nn",
    "compress.py": "a subcommand has the name of its feature",
    "span_answering.py": "a task and its criterion are registered under one name",
}


def part_of(module: str) -> str:
    """The part of the package that a module belongs to."""
    _, *names = module.split(".")
    deep = ".".join(names[:2])
    return deep if deep in MAY_IMPORT else names[0] if names else PACKAGE


def statements(node: ast.AST, functions: bool) -> Iterator[ast.AST]:
    """The nodes that run when a module is imported, or also those in its functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.FunctionDef) and not functions:
            continue
        yield child
        yield from statements(child, functions)


def named(path: Path, *, functions: bool) -> set[str]:
    """The modules that a file imports."""
    found = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8")), functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & MODULES.keys() or {str(node.module)}
    return found


def imported(path: Path, *, functions: bool) -> set[str]:
    """The modules of the package that a file imports."""
    return {name for name in named(path, functions=functions) if name.split(".")[0] == PACKAGE}


def test_every_import_runs_down():
    wrong = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        for name in sorted(imported(path, functions=True))
        if part_of(name) not in MAY_IMPORT[part_of(module)] | {part_of(module)}
    ]
    assert not wrong


def test_the_parts_have_an_order():
    others = {part: names - {part} for part, names in MAY_IMPORT.items()}
    assert len(list(TopologicalSorter(others).static_order())) == len(MAY_IMPORT)


def test_only_the_options_of_a_model_are_read_by_a_feature():
    read = {
        name
        for module, path in MODULES.items()
        if part_of(module) == "compression"
        for name in imported(path, functions=True)
        if part_of(name) == "models"
    }
    assert read == {f"{PACKAGE}.models.gmat_config"}


def test_no_modules_import_each_other():
    graph = {module: imported(path, functions=False) for module, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle: {' -> '.join(error.args[1])}")


def test_a_file_name_occurs_once():
    places = defaultdict(list)
    for path in MODULES.values():
        places[path.name].append(str(path.parent.relative_to(ROOT)))
    repeated = {name: folders for name, folders in places.items() if len(folders) > 1}
    assert repeated.keys() == SHARED_NAMES.keys(), repeated


def loaded(code: str) -> set[str]:
    """The modules that are loaded when code has run in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


HOST = {"fairseq", "omegaconf", "hydra"}


def test_the_library_imports_no_fairseq():
    """In functions neither."""
    library = [
        path
        for module, path in MODULES.items()
        if module.startswith(
            tuple(f"{PACKAGE}.{part}" for part in ("attention", "transformers", "onnx"))
        )
    ]
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in library
        for name in sorted(named(path, functions=True))
        if name.split(".")[0] in {*HOST, "fairseq_cli"}
    ]
    assert not wrong


def test_commands_and_preparations_import_no_fairseq():
    preparations = [
        f"data_prep.{path.stem}" for path in sorted((ROOT / "data_prep").glob("[!_]*.py"))
    ]
    modules = [
        *(name for name in MODULES if part_of(name) in ("evaluation", "cli")),
        *preparations,
    ]
    modules.remove(f"{PACKAGE}.cli.__main__")
    found = loaded("\n".join(f"import {name}" for name in modules))
    assert found >= set(modules)
    assert not found & HOST


def test_scoring_answers_imports_no_fairseq(tmp_path):
    gold, answers = tmp_path / "gold.jsonl", tmp_path / "answers.json"
    gold.write_text(json.dumps({"rules": "squad", "id": "a", "answers": ["x"]}))
    answers.write_text(json.dumps({"a": "x"}))
    argv = ["answers", "--answers", str(answers), "--gold", str(gold)]
    found = loaded(f"from fairseq_memattn.cli import main\nassert main({argv}) == 0")
    assert f"{PACKAGE}.qa.answer_scores" in found
    assert not found & HOST
