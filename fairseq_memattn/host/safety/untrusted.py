"""Keeps fairseq from running what it reads from files.

torch's protection covers the pickle of a checkpoint. The functions here cover the rest: options
that fairseq evaluates, and archives that it unpacks.
"""

import ast
import os
import shutil
import sys
import tarfile
from argparse import Namespace
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from fairseq_memattn.archive_limits import (
    Budget,
    RefusedArchive,
    TarInfo,
    refuse_special,
    safe_path,
)
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.safety.literals import LiteralError, read_literal

PACKAGES = ("fairseq", "fairseq_cli")
opened: deque[str] = deque(maxlen=8)  # the checkpoints that were loaded last, for messages


def read_literals_only() -> None:
    """Let `eval` read literals, and `exec` nothing, in all modules of fairseq.

    fairseq calls `eval` on options, which a checkpoint's `args` or `cfg` hold as well as a command
    line, so a checkpoint of plain values could run code. Each module gets its own `eval`; Python's
    does not change. A module that is imported later gets its own before it runs.
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
    """Give a module an `eval` that reads literals and an `exec` that refuses."""
    names = vars(module)
    names["eval"], names["exec"] = read_option, _refuse_to_execute
    if names.get("ast") is ast:
        names["ast"] = altered(ast, literal_eval=read_option)
    if names.get("literal_eval") is ast.literal_eval:
        names["literal_eval"] = read_option


def read_option(text: str, *namespaces: object) -> Any:
    """The value of a literal. Raises LiteralError, which says where the text is from."""
    try:
        return read_literal(text)
    except LiteralError as error:
        raise LiteralError(f"{_origin(text)}{error}") from None


def check_archives() -> None:
    """Let `from_pretrained` unpack only archives of plain files that stay within their folder.

    fairseq extracts whatever the archive holds, removes the archive, and then moves the folder that
    its names begin with, which may be outside.
    """
    from fairseq import file_utils

    file_utils.load_archive_file = _load_archive_file


def refuse_repositories() -> None:
    """Let no configuration of data name a repository whose code is downloaded and run.

    fairseq's interface to speech translation passes `tts_model_id` of `config.yaml` to torch.hub.
    """
    import torch

    with suppress(ImportError):
        from fairseq.models.speech_to_text import hub_interface

        hub_interface.torch = altered(torch, hub=altered(torch.hub, load=_refuse_repository))


def altered(module: ModuleType, **names: Any) -> ModuleType:
    """A copy of a module with other values of some names; the module itself stays as it is."""
    copy = ModuleType(module.__name__)
    vars(copy).update(vars(module) | names)
    return copy


class _CheckedArchive(tarfile.TarFile):
    """A tar archive whose members are checked before any of them is extracted."""

    tarinfo = TarInfo

    def getmembers(self) -> list[tarfile.TarInfo]:
        path = os.fsdecode(self.name or "")
        budget = Budget(os.path.getsize(path))
        try:
            for member in self:
                safe_path(member.name)
                if not (member.isfile() or member.isdir()):
                    raise refuse_special(member.name)
                budget.take(member.name, member.size)
        except RefusedArchive as error:
            raise RefusedArchive(f"{path}: {error}") from None
        return super().getmembers()

    def extractall(self, path: Any = ".", *args: Any, **options: Any) -> None:
        self.getmembers()
        super().extractall(path, filter="data")


def _load_archive_file(archive_file: str) -> str | None:
    """The folder with the content of an archive or, as given, a folder; None if there is neither.

    The content is in a folder beside the archive, which stays, or in the one folder in that, and so
    on.
    """
    from fairseq import file_utils

    try:
        archive = file_utils.cached_path(archive_file, cache_dir=None)
    except OSError:
        return None
    if os.path.isdir(archive):
        return str(archive)
    folder = Path(f"{archive}.extracted-{os.stat(archive).st_mtime_ns}")
    if not folder.is_dir():
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
        unfinished.mkdir()
        try:
            with _CheckedArchive.open(archive) as content:
                content.extractall(unfinished)
            with suppress(OSError):  # another process has made it meanwhile
                unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    while len(inside := list(folder.iterdir())) == 1 and inside[0].is_dir():
        folder = inside[0]
    return str(folder)


def _refuse_repository(repository: str, model: str, **options: Any) -> NoReturn:
    raise MemAttnError(
        f"config.yaml names the model {model} of the repository {repository}, whose code would be "
        "run; nothing of it was run, load it with torch.hub.load"
    )


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


def _origin(text: str) -> str:
    """Where an option is from, if a command line or a checkpoint has it; begins a message."""
    for before, argument in zip(sys.argv, sys.argv[1:], strict=False):
        name, _, value = argument.partition("=")
        if value == text:
            return f"{name}: "
        if argument == text and before.startswith("--"):
            return f"{before}: "
    for path in reversed(opened):
        for name in _options_with(text, path):
            return f"{path} is refused for its option `{name}`: "
    return ""


def _options_with(text: str, path: str) -> Iterator[str]:
    """The names of the options of a checkpoint that have this text."""
    import torch

    with suppress(Exception):  # a file that is gone by now
        state = torch.load(path, map_location="cpu", weights_only=True)
        yield from _names_of(text, {name: state.get(name) for name in ("args", "cfg")})


def _names_of(text: str, options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Namespace):
            value = vars(value)
        if isinstance(value, Mapping):
            yield from _names_of(text, value)
        elif isinstance(value, str) and value == text:
            yield name
