"""What the causal form keeps for its backward pass: a small multiple of its inputs."""

import pytest
import torch
from abc_cases import Case, inputs
from cases import nbytes, saved_for_backward

from fairseq_memattn.attention import abc_attention

CASE = Case(1024, batch=1, width=64, slots=32)


@pytest.fixture
def saved(device):
    leaves = inputs(CASE).leaves(torch.float32, device)
    return saved_for_backward(lambda *x: abc_attention(*x, causal=True), leaves)


def test_saves_a_small_multiple_of_its_inputs(saved):
    assert sum(map(nbytes, saved)) <= 2.5 * sum(map(nbytes, inputs(CASE)))


def test_saves_no_memory_for_every_token(saved):
    """A memory for each prefix would be T x M x D numbers a head."""
    largest = max(map(nbytes, saved)) / 4
    assert largest / CASE.heads < CASE.length * CASE.slots * CASE.width / 8
