"""What the tests of the preparations share: fairseq's commands in this process.

A process of its own would import torch and fairseq for each call, which takes seconds. Tests in
which the process is the point ask for `own_process`.
"""

from collections.abc import Iterator

import pytest
from in_process import preprocess_in_process

from fairseq_memattn.data_prep.pipeline import binarise

IN_A_PROCESS = binarise.run_preprocess


@pytest.fixture(scope="module", autouse=True)
def in_this_process() -> Iterator[None]:
    """Preparations run fairseq-preprocess in this process."""
    with preprocess_in_process():
        yield


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparations run fairseq-preprocess in a process of its own, as they do for a user."""
    monkeypatch.setattr(binarise, "run_preprocess", IN_A_PROCESS)
