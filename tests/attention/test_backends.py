"""The choice of an implementation: forced, equal, and without a look at the data."""

from types import SimpleNamespace

import pytest
import torch
from abc_cases import Case
from abc_cases import inputs as inputs_of
from cases import Inputs, in_pieces, run
from torch import Tensor
from torch.testing import assert_close

from fairseq_memattn.attention import abc_attention, abc_step, additive_step, use_backend
from fairseq_memattn.attention.ops import abc, additive, common
from fairseq_memattn.attention.ops.common import MemoryState

STEPS = {"abc": (abc_step, abc), "additive": (additive_step, additive)}
operations = pytest.mark.parametrize("operation", STEPS)


def inputs(shared: bool = False, device: str = "cpu") -> Inputs:
    return inputs_of(Case(shared=shared)).leaves(torch.float64, device)


def results(operation: str, backend: str, shared: bool) -> dict[str, Tensor]:
    """Outputs, the final state, and the gradients of both, from a state that is not empty."""
    step, _ = STEPS[operation]
    args = inputs(shared)
    args.log_alpha.data[0, :, :5, 0] = -torch.inf if operation == "abc" else 0.0
    mask = torch.zeros(2, 13, dtype=torch.bool)
    mask[1, :3] = mask[1, 11:] = True

    def attend(*args: Tensor) -> tuple[Tensor, ...]:
        out, state = in_pieces(step, args, [4, 9], key_padding_mask=mask)
        return out, state.keys, state.values, state.log_mass

    with use_backend(backend):
        return run(attend, args)


@operations
@pytest.mark.parametrize("shared", [True, False])
def test_backends_are_equal(operation, shared):
    chunked, naive = (results(operation, name, shared) for name in ("chunked", "naive"))
    for name, slow in naive.items():
        assert_close(chunked[name], slow, msg=f"{name}: {{}}".format)


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


A100, V100 = SimpleNamespace(major=8), SimpleNamespace(major=7)


@pytest.mark.parametrize(
    ("gpu", "dtype", "width", "slots", "gradient", "chosen"),
    [
        (A100, torch.bfloat16, 64, 32, False, "triton"),
        (V100, torch.float16, 64, 32, False, "chunked"),
        (None, torch.float32, 64, 32, False, "chunked"),
        (A100, torch.float64, 64, 32, False, "chunked"),
        (A100, torch.float32, 257, 32, False, "chunked"),
        (A100, torch.float32, 64, 257, False, "chunked"),
        (A100, torch.float32, 64, 32, True, "chunked"),
    ],
)
def test_choice(gpu, dtype, width, slots, gradient, chosen, monkeypatch):
    """By device, dtype and sizes, and by whether a kernel without gradients would do."""
    monkeypatch.setattr(common, "HAS_TRITON", True)
    monkeypatch.setattr(common._Forced, "blocks", [])
    monkeypatch.setattr(common._Forced, "of_environment", None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    device = torch.device("cuda" if gpu else "cpu")
    q = SimpleNamespace(device=device, dtype=dtype, shape=(1, 1, 9, width))
    names = {name: name for name in common.NAMES}
    assert common.choose(names, q, slots, gradient) == chosen
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert common.choose(names, q, slots, gradient) == "chunked"


@pytest.mark.parametrize(
    ("installed", "found"),
    [("3.2.0", False), ("3.3.0+git1234", True), ("3.10.1", True), (None, True)],
)
def test_versions_of_triton(installed, found, monkeypatch):
    def version(name):
        if installed is None:
            raise common.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(common, "find_spec", lambda name: object())
    monkeypatch.setattr(common, "version", version)
    assert common._has_triton() == found
    monkeypatch.setattr(common, "find_spec", lambda name: None)
    assert not common._has_triton()


def test_a_wrong_environment_variable(monkeypatch):
    monkeypatch.setenv("MEMATTN_BACKEND", "cuda")
    with pytest.raises(ValueError, match="MEMATTN_BACKEND must be torch or triton, but is 'cuda'"):
        common._from_environment()


def test_no_data_is_read_on_the_way_to_the_backend(monkeypatch):
    """Tensors of the meta device have no data: a read-back raises."""

    def backend(q, k, v, s, state, scale, chunk_size):
        return torch.empty_like(q), MemoryState.empty(k, v, s)

    monkeypatch.setattr(abc, "BACKENDS", {"chunked": backend})
    tensors = inputs(device="meta")
    mask = torch.zeros(2, 13, dtype=torch.bool, device="meta")
    out = abc_attention(*tensors, causal=True, key_padding_mask=mask)
    assert out.shape == tensors.q.shape
    _, state = abc_step(*tensors, None, key_padding_mask=mask)
    assert isinstance(state, MemoryState)


def test_blocks_of_threads_end_in_any_order():
    before = common._Forced.name()
    first, second = use_backend("naive"), use_backend("chunked")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert common._Forced.name() == "chunked"
    second.__exit__(None, None, None)
    assert common._Forced.name() == before


def test_blocks_of_the_same_name_end_as_a_stack():
    with use_backend("naive"):
        with use_backend("chunked"):
            with use_backend("naive"):
                pass
            assert common._Forced.name() == "chunked"
        assert common._Forced.name() == "naive"
