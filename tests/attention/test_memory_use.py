"""What the causal form keeps for its backward pass: a small multiple of its inputs."""

import pytest
import torch
from abc_cases import Case, inputs

from fairseq_memattn.attention import abc_attention

CASE = Case(1024, batch=1, heads=2, width=64, slots=32)


def saved_for_backward(function, args):
    """The distinct tensors that function(*args) keeps for its backward pass, by storage."""
    saved = {}

    def pack(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor  # kept, so that no address is reused
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = function(*args)
    assert out.requires_grad
    return list(saved.values())


@pytest.fixture
def saved(device):
    leaves = inputs(CASE).leaves(torch.float32, device)
    return saved_for_backward(lambda *x: abc_attention(*x, causal=True), leaves)


def test_saves_a_small_multiple_of_its_inputs(saved):
    kept = sum(tensor.untyped_storage().nbytes() for tensor in saved)
    given = sum(tensor.untyped_storage().nbytes() for tensor in inputs(CASE))
    assert kept <= 2.5 * given


def test_saves_no_memory_for_every_token(saved):
    """A memory for each prefix would be T x M x D numbers a head."""
    largest = max(tensor.untyped_storage().nbytes() for tensor in saved) / 4
    assert largest / CASE.heads < CASE.length * CASE.slots * CASE.width / 8
