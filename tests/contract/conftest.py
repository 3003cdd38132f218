"""The data and the checkpoints that the tests share, and which cases run without --contract."""

from pathlib import Path

import pytest
from contract_cases import Case
from contract_models import folder_of, save, write_data
from harness import Trained


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--contract"):
        return
    deep = {item for item in items if item.get_closest_marker("contract")}
    config.hook.pytest_deselected(items=list(deep))
    items[:] = [item for item in items if item not in deep]


@pytest.fixture(scope="session")
def contract_data(tmp_path_factory) -> Path:
    """The folders `pairs` and `text`, binarised."""
    root = tmp_path_factory.mktemp("contract")
    write_data(root)
    return root


class Models:
    """The checkpoint of a case with its data, written when it is first asked for."""

    def __init__(self, data: Path, folder: Path) -> None:
        self.data, self.folder = data, folder

    def __call__(self, case: Case) -> Trained:
        path = self.folder / case.name / "checkpoint_last.pt"
        if not path.exists():
            path.parent.mkdir()
            save(case, self.data, path)
        return Trained(folder_of(case, self.data), path, "")


@pytest.fixture(scope="session")
def models(contract_data, tmp_path_factory) -> Models:
    return Models(contract_data, tmp_path_factory.mktemp("models"))
