"""recipes/t5mem/selected_chunks.py: the selector's weights against the chunks of the answers."""

from pathlib import Path
from types import ModuleType

import pytest
import torch
from scripts import load

from fairseq_memattn.data.chunks import Chunking


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("t5mem/selected_chunks.py")


def test_spans_are_those_of_the_last_fact(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "test.facts"
    path.write_text("6:11\n6:11 12:18\n")
    assert script.read_spans(path) == [(6, 11), (12, 18)]


@pytest.mark.parametrize("head, overlap", [(0, 0), (0, 3), (2, 3)])
def test_true_chunks_by_token(script: ModuleType, head: int, overlap: int) -> None:
    """Chunks with most tokens of a span; the first chunks of a shorter source are empty."""
    chunking = Chunking(4, 8, overlap)
    several = 0
    for size in range(head + 5, chunking.capacity(head) + 1):
        source = torch.arange(size)
        for begin in range(head, size - 3):
            span = (begin, begin + 4)
            chunks = [set(chunk[head:].tolist()) for chunk in chunking.split(source, head)]
            held = [len(set(range(*span)) & chunk) for chunk in chunks]
            expected = [count == max(held) for count in held]
            assert script.true_chunk(span, size, head, chunking) == expected
            several += sum(expected) > 1
    assert (several > 0) == (overlap == 0)  # with 3, a span of 4 is whole in one chunk


def test_no_chunk_is_true_for_a_span_that_was_cut_off(script: ModuleType) -> None:
    assert script.true_chunk((60, 66), 48, 0, Chunking(4, 12)) == [False] * 4


def test_rows_are_the_hits_and_weights_of_each_layer(script: ModuleType) -> None:
    weights = torch.tensor([[[0.6, 0.4], [0.2, 0.8]], [[0.5, 0.5], [0.1, 0.9]]])
    true = torch.tensor([[True, False], [False, True]])
    assert script.rows(weights, true) == [["0", "50.0", "55.0"], ["1", "50.0", "55.0"]]
