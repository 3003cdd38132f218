"""The source files that a folder needs to be loaded with `trust_remote_code=True`.

transformers copies the files of a folder that import one another by relative imports, and no
folders in it. The modules of this package become files side by side: `attention.ops.common` becomes
`attention_ops_common.py`.
"""

import ast
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from fairseq_memattn.attention.controls.registry import all_controls
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export.model_card import auto_classes

PACKAGE = "fairseq_memattn"
KERNELS = f"{PACKAGE}.attention.ops.abc.triton"
COMMON = f"{PACKAGE}.attention.ops.common"
CONTROLS = f"{PACKAGE}.attention.controls"
THIS = "import sys\n\nthis = sys.modules[__name__]\n"
HEADER = "# Written by `memattn export --self-contained` from {name}.\n\n"


def write_sources(folder: Path, model: PreTrainedModel, tokenizer: Any) -> None:
    """Writes the files, and their names into the configurations of the model and the tokenizer.

    A tokenizer of transformers itself needs none.

    Raises MemAttnError for a model, and for a control, that is not one of this package.
    """
    if not type(model).__module__.startswith(f"{PACKAGE}."):
        raise MemAttnError(
            f"--self-contained is for models of {PACKAGE}, not {type(model).__name__}"
        )
    config, made = type(model.config), type(model)
    tokenizers = [type(tokenizer)] if type(tokenizer).__module__.startswith(PACKAGE) else []
    files = sources([cls.__module__ for cls in (config, made, *tokenizers)], model)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    own = dict.fromkeys(auto_classes(model), _place(made))
    _add(folder / "config.json", {"AutoConfig": _place(config), **own})
    for cls in tokenizers:
        _add(folder / "tokenizer_config.json", {"AutoTokenizer": [_place(cls), None]})


def sources(modules: list[str], model: PreTrainedModel) -> dict[str, str]:
    """The files by name without `.py`, of some modules and all that they import.

    Triton's kernels are left out, and the controls that the model does not have.
    """
    waiting, files = list(modules), {}
    while waiting:
        module = waiting.pop()
        if _flat(module) not in files:
            text, found = _rewritten(module, controls_of(model))
            files[_flat(module)] = text
            waiting += found
    return files


def controls_of(model: PreTrainedModel) -> list[str]:
    """The modules of the controls in a model."""
    kinds = {type(part) for part in model.modules()}
    found = sorted({cls.__module__ for cls in all_controls().values() if cls in kinds})
    for module in found:
        if not module.startswith(f"{PACKAGE}."):
            raise MemAttnError(
                f"--self-contained is for the controls of {PACKAGE}, but the model has one of "
                f"{module}"
            )
    return found


def _rewritten(module: str, controls: list[str]) -> tuple[str, list[str]]:
    """The text of a module with relative imports, and the modules that it imports."""
    text = _path(module).read_text(encoding="utf-8")
    lines, found = text.splitlines(keepends=True), []
    tree = ast.parse(text)
    for node in sorted(_own_imports(tree), key=lambda node: -node.lineno):
        statements, imported = _relative(node)
        found += imported
        indent = " " * node.col_offset
        lines[node.lineno - 1 : node.end_lineno] = [f"{indent}{line}\n" for line in statements]
    if module == CONTROLS:
        # In the package, every file of the folder is imported.
        [loop] = [node for node in tree.body if isinstance(node, ast.For)]
        marker = ast.get_source_segment(text, loop)
        assert marker is not None
        chosen = [f"from .{_flat(name)} import this as _{_flat(name)}\n" for name in controls]
        rest = "".join(lines).replace(marker, "".join(chosen).rstrip("\n"))
        lines, found = [rest], [*found, *controls]
    ending = "\nHAS_TRITON = False  # the kernels are not in this folder\n"
    whole = HEADER.format(name=module) + "".join(lines)
    return _with_this(whole) + (ending if module == COMMON else ""), found


def _own_imports(tree: ast.AST) -> Iterator[ast.ImportFrom]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            yield node


def _relative(node: ast.ImportFrom) -> tuple[list[str], list[str]]:
    """The statements in the place of `from fairseq_memattn.x import ...`, and what they import."""
    statements, found, names = [], [], []
    assert node.module is not None
    for alias in node.names:
        module = f"{node.module}.{alias.name}"
        if not _path(module).exists():
            names.append(ast.unparse(alias))
        elif not module.startswith(KERNELS):
            statements.append(f"from .{_flat(module)} import this as {alias.asname or alias.name}")
            found.append(module)
    if names and node.module.startswith(KERNELS):
        return ['raise ImportError("the kernels are not in this folder")'], []
    if names:
        statements.append(f"from .{_flat(node.module)} import {', '.join(names)}")
        found.append(node.module)
    return statements or ['raise ImportError("the kernels are not in this folder")'], found


def _with_this(text: str) -> str:
    """With the module itself under the name `this`, after its docstring and future imports."""
    tree = ast.parse(text)
    first = 0
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and getattr(node, "module", "") != "__future__":
            break
        first = node.end_lineno or 0
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:first], "\n", THIS, *lines[first:]])


def _path(module: str) -> Path:
    spec = find_spec(PACKAGE)
    assert spec is not None and spec.submodule_search_locations
    path = Path(spec.submodule_search_locations[0], *module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _flat(module: str) -> str:
    return module.removeprefix(f"{PACKAGE}.").replace(".", "_")


def _place(cls: type) -> str:
    return f"{_flat(cls.__module__)}.{cls.__name__}"


def _add(path: Path, auto_map: dict[str, Any]) -> None:
    config = json.loads(path.read_text(encoding="utf-8"))
    config["auto_map"] = auto_map
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
