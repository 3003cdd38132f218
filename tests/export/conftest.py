import pytest


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A tiny RoBERTa and its data, which `stand_in` converts in the tests of a file."""
    from tiny_roberta import prepare, registered

    with registered():
        yield prepare(tmp_path_factory.mktemp("prepared"))
