import pytest
from fixtures import *  # noqa: F403


@pytest.fixture
def marker(tmp_path):
    """A file that hostile code would create."""
    path = tmp_path / "marker"
    yield path
    assert not path.exists()
