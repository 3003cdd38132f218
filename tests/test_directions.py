"""Which parts of the package may import which, read from the import statements."""

import ast
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

# The folders and root modules of the package, and those that each may import, in functions too.
MAY_IMPORT = {
    PACKAGE: "moved",
    "moved": "",
    "errors": "",
    "files": "errors",
    "pieces": "",
    "archive_limits": "errors",
    "attention.ops": "",
    "attention.controls": "attention.ops",
    "attention.nn": "attention.ops attention.controls",
    "attention": "attention.ops attention.controls attention.nn",
    "networks": "attention errors",
    "documents": "attention errors files",
    "evaluation": "errors files pieces",
    "qa": "evaluation errors files",
    "compression": "documents errors files",
    "host": "errors files pieces archive_limits",
    "modules": "attention networks errors",
    "models": "attention networks modules host errors",
    "data": "documents qa evaluation errors files",
    "criterions": "attention modules data qa host errors",
    "optimizers": "host",
    "tasks": """compression criterions data documents evaluation host models modules networks qa
        attention errors pieces""",
    "transformers": "attention networks documents errors pieces",
    "onnx": "attention networks transformers errors",
    "export": "attention networks transformers models modules tasks data host errors files pieces",
    "cli": f"""attention archive_limits compression criterions data data_prep
        documents errors evaluation export files host models modules networks onnx qa tasks
        transformers pieces {PACKAGE}""",
    "data_prep": "qa evaluation host archive_limits errors files pieces",
}
# fairseq is imported here and nowhere else.
WITH_FAIRSEQ = "host modules models tasks criterions optimizers data export cli".split()


def allowed(part: str) -> set[str]:
    """The parts that a part may import. A folder of `attention` is allowed with all of it."""
    names = set(MAY_IMPORT[part].split()) | {part}
    return names | {name for name in MAY_IMPORT if name.partition(".")[0] in names}


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
        if part_of(name) not in allowed(part_of(module))
    ]
    assert not wrong


def test_the_parts_have_an_order():
    others = {part: names.split() for part, names in MAY_IMPORT.items()}
    assert len(list(TopologicalSorter(others).static_order())) == len(MAY_IMPORT)


def test_no_modules_import_each_other():
    graph = {module: imported(path, functions=False) for module, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle: {' -> '.join(error.args[1])}")


HOST = {"fairseq", "omegaconf", "hydra"}


def test_fairseq_is_imported_behind_the_wall_alone():
    """In functions neither."""
    wrong = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if part_of(module) not in WITH_FAIRSEQ
        for name in sorted(named(path, functions=True))
        if name.split(".")[0] in {*HOST, "fairseq_cli"}
    ]
    assert not wrong
