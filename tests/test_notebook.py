"""examples/memory.ipynb runs, and is committed with the outputs of a whole run."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples/memory.ipynb"
MAX_BYTES = 400_000


def cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(notebook: nbformat.NotebookNode) -> str:
    outputs = [output for cell in cells(notebook) for output in cell.outputs]
    return "".join(output.get("text", "") for output in outputs)


@pytest.mark.full
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tiny corpus and three updates."""
    for name, value in {"UPDATES": "3", "DOCUMENTS": "60", "EXAMPLES": "3"}.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    text = printed(notebook)
    assert "wrote document.html: 8 sentences" in text
    assert "slot " in text and "\ntotal " in text
    assert (tmp_path / "memory-notebook/training.png").is_file()


def test_its_outputs_are_those_of_a_whole_run_and_small() -> None:
    assert NOTEBOOK.stat().st_size < MAX_BYTES
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert [cell.execution_count for cell in cells(notebook)] == [
        *range(1, len(cells(notebook)) + 1)
    ]
    assert all(cell.outputs for cell in cells(notebook)[1:])
    assert "after 1000\n" in printed(notebook)  # updates
