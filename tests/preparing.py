"""`memattn prepare` in this process."""

from collections.abc import Sequence
from types import ModuleType

from fairseq_memattn.cli import main


def prepare(module: ModuleType, argv: Sequence[str]) -> int:
    """Runs a preparation, by the module of its name; returns the exit status."""
    return main(["prepare", module.__name__.rpartition(".")[2].replace("_", "-"), *argv])
