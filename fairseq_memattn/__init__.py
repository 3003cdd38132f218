"""Long-context transformers with a bounded memory: a plugin for fairseq, and a PyTorch library.

`import fairseq_memattn` changes nothing and imports neither torch nor fairseq. The attention
layers in `fairseq_memattn.attention` need PyTorch alone. The models and tasks are registered with
fairseq in one of three ways:

- `--user-dir fairseq_memattn`, or `user_dir` of fairseq's `from_pretrained`, registers all of them;
- `fairseq_memattn.register()` does the same in a program;
- importing a module of `fairseq_memattn.models`, `.tasks`, `.criterions` or `.optimizers` registers
  what it holds.
"""

import sys
from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from fairseq_memattn.moved import Finder

if TYPE_CHECKING:
    __version__: str


def register() -> None:
    """Registers all models, tasks, criterions and optimizers. A second call does nothing.

    Raises ImportError, which names what to install, if fairseq is missing or does not work.
    """
    for name in ("criterions", "models", "optimizers", "tasks"):
        folder = import_module(f"{__name__}.{name}")
        for module in iter_modules(folder.__path__):
            import_module(f"{folder.__name__}.{module.name}")


def __getattr__(name: str) -> str:
    """`__version__`, which `pyproject.toml` states and the installation records."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fairseq-memattn")
    except PackageNotFoundError:
        return "unknown"  # a checkout that is not installed, used through --user-dir


class _UserDirectory(list[str]):
    """The folders of this package, in the form that fairseq asks for.

    fairseq's `import_user_module` imports the files of a user directory only if the package is not
    imported yet. For a package that is, it asks `directory in package.__path__` and does nothing
    more. A program that has imported the attention layers first gets its models at that question.
    """

    def __init__(self, folders: Iterable[str]) -> None:
        super().__init__(folders)

    def __contains__(self, folder: object) -> bool:
        found = super().__contains__(folder)
        if found and "fairseq.utils" in sys.modules:
            register()
        return found


__path__ = _UserDirectory(__path__)
sys.meta_path.append(Finder())
