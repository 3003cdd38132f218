"""What the causal form keeps for its backward pass: a small multiple of its inputs."""

import torch
from abc_cases import Case, inputs
from cases import nbytes, saved_for_backward

from fairseq_memattn.attention import abc_attention

CASE = Case(1024, batch=1, width=64, slots=32)


def test_saves_a_small_multiple_of_its_inputs(device):
    """A memory for each prefix, T x M x D numbers a head, would be nine times as much."""
    leaves = inputs(CASE).leaves(torch.float32, device)
    saved = saved_for_backward(lambda *x: abc_attention(*x, causal=True), leaves)
    assert sum(map(nbytes, saved)) <= 2.5 * sum(map(nbytes, inputs(CASE)))
