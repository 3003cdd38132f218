"""Keeps fairseq from running the text of options, which a checkpoint holds as well."""

import ast
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.safety.literals import read_literal

PACKAGES = ("fairseq", "fairseq_cli")


def read_literals_only() -> None:
    """Options are read as literals, and nothing is executed.

    Each module gets its own `eval`; Python's does not change. A module that is imported later gets
    its own before it runs.
    """
    for name, module in list(sys.modules.items()):
        if is_fairseq(name, module):
            restrict(module)
    sys.meta_path.insert(0, _Finder())


def is_fairseq(name: str, module: ModuleType) -> bool:
    """Whether a module is part of fairseq, or a command of fairseq that runs as a script."""
    if name != "__main__":
        return name.partition(".")[0] in PACKAGES
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve().parent.name == "fairseq_cli"


def restrict(module: ModuleType) -> None:
    """Gives a module an `eval` that reads literals and an `exec` that refuses."""
    names = vars(module)
    names["eval"], names["exec"] = _evaluate, _refuse_to_execute
    if names.get("ast") is ast:
        names["ast"] = ModuleType(ast.__name__)
        vars(names["ast"]).update(vars(ast) | {"literal_eval": _evaluate})
    if names.get("literal_eval") is ast.literal_eval:
        names["literal_eval"] = _evaluate


def _evaluate(text: str, *namespaces: object) -> object:
    return read_literal(text)


def _refuse_to_execute(code: object, *namespaces: object) -> NoReturn:
    raise MemAttnError(f"fairseq was about to run {code!r:.60}; nothing of it was run")


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        restrict(module)  # before it runs, and after, when it has imported `ast`
        super().exec_module(module)
        restrict(module)


class _Finder:
    """Finds fairseq's modules as Python does, and restricts them."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in PACKAGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec
