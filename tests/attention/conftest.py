import logging
import os

import pytest
import torch

from fairseq_memattn.attention import use_backend
from fairseq_memattn.attention.ops.abc import chunked as causal
from fairseq_memattn.attention.ops.abc import short

# Read when kernels are imported: without a GPU, Triton runs them on the CPU, slowly.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Thousands of records of each compilation, which pytest would format.
logging.getLogger("torch.__trace").propagate = False


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def operations_of_pytorch():
    """The forms in PyTorch, on a GPU too; the tests of the kernels force these."""
    with use_backend("chunked"):
        yield


@pytest.fixture(scope="session")
def gpu_or_interpreter(device):
    """The device of kernels; skips where the package triton is missing."""
    pytest.importorskip("triton")
    return device


@pytest.fixture
def in_chunks(monkeypatch):
    """As if no sequence were short: the causal form carries a memory."""
    monkeypatch.setattr(short, "fits", lambda q, k: False)


@pytest.fixture
def stable_form(monkeypatch, in_chunks):
    """As if no write weights could be factored: the causal form computes them pair by pair."""
    monkeypatch.setattr(causal, "_factor", lambda log_alpha, log_mass: None)


@pytest.fixture(params=["short", "factored", "stable"])
def causal_form(request):
    """Runs a test by a causal form: of short sequences, factored (where it holds) or stable."""
    if request.param == "factored":
        request.getfixturevalue("in_chunks")
    if request.param == "stable":
        request.getfixturevalue("stable_form")
