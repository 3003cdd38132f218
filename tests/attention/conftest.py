import pytest
import torch


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def exact_matmul():
    """TF32 would be compared with float64."""
    torch.backends.cuda.matmul.allow_tf32 = False
