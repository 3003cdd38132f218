"""recipes/t5mem/selected_chunks.py: the selector's weights against the chunks of the answers."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "recipes/t5mem/selected_chunks.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("selected_chunks", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_spans_are_those_of_the_last_fact(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "test.facts"
    path.write_text("6:11\n6:11 12:18\n")
    assert script.read_spans(path) == [(6, 11), (12, 18)]


def test_true_chunks_by_token(script: ModuleType) -> None:
    """A span over a border is in two chunks; the first chunks of a shorter source are empty."""
    spans, sizes = [(0, 4), (3, 5), (8, 12), (4, 8)], [16, 16, 16, 9]
    found = script.true_chunks(spans, torch.tensor(sizes), length=4, most=4)
    for chunks, span, size in zip(found, spans, sizes, strict=True):
        blocks = torch.arange(size).split(4)
        empty = [torch.arange(0)] * (4 - len(blocks))
        expected = [any(span[0] <= t < span[1] for t in part) for part in [*empty, *blocks]]
        assert chunks.tolist() == expected


def test_rows_are_the_hits_and_weights_of_each_layer(script: ModuleType) -> None:
    weights = torch.tensor([[[0.6, 0.4], [0.2, 0.8]], [[0.5, 0.5], [0.1, 0.9]]])
    true = torch.tensor([[True, False], [False, True]])
    assert script.rows(weights, true) == [["0", "50.0", "55.0"], ["1", "50.0", "55.0"]]


@pytest.mark.parametrize("given", ["pieces/test.facts", "model.pt"])
def test_missing_files(
    script: ModuleType, given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pieces").mkdir()
    (tmp_path / "pieces/test.facts").touch()
    (tmp_path / "model.pt").touch()
    (tmp_path / given).unlink()
    assert script.main([str(tmp_path), "--path", str(tmp_path / "model.pt")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / given}: there is no such file\n"
