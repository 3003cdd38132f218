"""The choice of an implementation: forced, equal, and without a look at the data."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fairseq_memattn.attention import abc_attention, abc_step, additive_step, use_backend
from fairseq_memattn.attention.ops import abc, additive
from fairseq_memattn.attention.ops.state import MemoryState

STEPS = {"abc": (abc_step, abc), "additive": (additive_step, additive)}
operations = pytest.mark.parametrize("operation", STEPS)


def inputs(length: int = 13, heads_of_control: int = 2, device: str = "cpu") -> list[Tensor]:
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 2, 2, length, 4, dtype=torch.double, device=device)
    control = torch.randn(2, heads_of_control, length, 3, dtype=torch.double, device=device)
    return [tensor.requires_grad_() for tensor in (q, k, v, control)]


def results(operation: str, backend: str, heads_of_control: int) -> list[Tensor]:
    """Outputs, the final state, and the gradients of both, from a state that is not empty."""
    step, _ = STEPS[operation]
    tensors = inputs(heads_of_control=heads_of_control)
    control = tensors[3]
    control.data[0, :, :5, 0] = -torch.inf if operation == "abc" else 0.0
    mask = torch.zeros(2, 13, dtype=torch.bool)
    mask[1, :3] = mask[1, 11:] = True
    with use_backend(backend):
        _, start = step(*(t[:, :, :4] for t in tensors), None, key_padding_mask=mask[:, :4])
        out, state = step(*(t[:, :, 4:] for t in tensors), start, key_padding_mask=mask[:, 4:])
    weights = [torch.randn(t.shape, dtype=t.dtype) for t in (out, state.keys, state.values)]
    loss = sum((w * t).sum() for w, t in zip(weights, (out, *state[:2]), strict=True))
    return [out, *state, *torch.autograd.grad(loss, tensors)]


@operations
@pytest.mark.parametrize("heads_of_control", [1, 2])
def test_backends_are_equal(operation, heads_of_control):
    one, other = (results(operation, name, heads_of_control) for name in ("chunked", "naive"))
    for fast, slow in zip(one, other, strict=True):
        assert_close(fast, slow)


@operations
def test_the_forced_backend_runs(operation, monkeypatch):
    step, module = STEPS[operation]
    called = []

    def spy(name):
        function = module.BACKENDS[name]
        return lambda *args: (called.append(name), function(*args))[1]

    monkeypatch.setattr(module, "BACKENDS", {name: spy(name) for name in module.BACKENDS})
    step(*inputs(), None)
    with use_backend("naive"):
        step(*inputs(), None)
    step(*inputs(), None)
    assert called == ["chunked", "naive", "chunked"]


def test_unknown_backend():
    with (
        pytest.raises(ValueError, match="one of chunked, naive, but is 'cuda' instead"),
        use_backend("cuda"),
    ):
        pass


def test_no_data_is_read_on_the_way_to_the_backend(monkeypatch):
    """Tensors of the meta device have no data: a read-back raises."""

    def backend(q, k, v, s, state, chunk_size):
        return torch.empty_like(q), state

    monkeypatch.setattr(abc, "BACKENDS", {"chunked": backend})
    tensors = inputs(device="meta")
    mask = torch.zeros(2, 13, dtype=torch.bool, device="meta")
    out = abc_attention(*tensors, causal=True, key_padding_mask=mask)
    assert out.shape == tensors[0].shape
    _, state = abc_step(*tensors, None, key_padding_mask=mask)
    assert isinstance(state, MemoryState)
