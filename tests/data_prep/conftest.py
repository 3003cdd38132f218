"""What the tests of the preparations share: fairseq's commands in this process.

A process of its own would import torch and fairseq for each call, which takes seconds. Tests in
which the process is the point ask for `own_process`.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from data_prep import binarise

IN_A_PROCESS = binarise.run_preprocess


def preprocess(flags: Sequence[str], folder: Path) -> int:
    """fairseq-preprocess as `run_preprocess` runs it, in this process."""
    from fairseq_cli import preprocess as command

    before, level = Path.cwd(), command.logger.level
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fairseq-preprocess", *flags])
        command.logger.setLevel("INFO")
        os.chdir(folder)
        try:
            command.cli_main()
        finally:
            os.chdir(before)
            command.logger.setLevel(level)
            for handler in command.logger.handlers[:]:  # it writes the log in the folder
                command.logger.removeHandler(handler)
                handler.close()
    return 0


@pytest.fixture(scope="module", autouse=True)
def in_this_process() -> Iterator[None]:
    """Preparations run fairseq-preprocess in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binarise, "run_preprocess", preprocess)
        yield


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparations run fairseq-preprocess in a process of its own, as they do for a user."""
    monkeypatch.setattr(binarise, "run_preprocess", IN_A_PROCESS)
