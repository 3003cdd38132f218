"""The kernels as operators of torch: compiled, checkpointed, under autocast, in a CUDA graph."""

import warnings
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from abc_cases import Case, inputs
from cases import Inputs, assert_all_close, assert_equal, in_pieces, padding, run
from full import full
from recording import READS, Recorder
from torch.utils.checkpoint import checkpoint

from fairseq_memattn.attention import abc_attention, abc_step, additive_step, use_backend
from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.attention.ops.common import MemoryState

CASE = Case(9, "left", batch=1, heads=1, shared=True)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def kernels(gpu_or_interpreter):
    with use_backend("triton"):
        yield gpu_or_interpreter


@pytest.fixture
def no_kernels(monkeypatch):
    """Launches that do nothing, for tensors without data."""
    from fairseq_memattn.attention.ops.abc.triton import decoding, kernels, launch

    class Nothing:
        def __init__(self, name):
            self.name = name

        def __getitem__(self, grid):
            return lambda *args, **options: ran.append(self.name)

    ran = []
    monkeypatch.setattr(launch, "INTERPRETED", True)
    monkeypatch.setattr(launch, "QUICK", False)
    for name in ("states", "scan", "attend", "queries_back", "scan_back", "tokens_back"):
        monkeypatch.setattr(kernels, name, Nothing(name))
    monkeypatch.setattr(decoding, "step_kernel", Nothing("step_kernel"))
    return ran


def attend(mask, *args):
    return abc_attention(*args, causal=True, key_padding_mask=mask)


# --- torch.compile


@pytest.mark.parametrize("control", ["mlp"])
def test_a_layer_compiles_to_one_graph(control, device):
    layer = ABCAttention(8, 2, slots=3, control=control, causal=True).to(device)
    x = torch.randn(2, 9, 8, device=device, requires_grad=True)
    mask = padding(Case(9, "left"), device)
    leaves = Inputs(x=x, **{n.replace(".", "_"): p for n, p in layer.named_parameters()})

    def forward(function):
        return run(lambda x, *_: function(x, key_padding_mask=mask), leaves)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_all_close(forward(compiled), forward(layer), 1e-6)


@pytest.mark.full
def test_one_graph_for_many_lengths(device):
    """Packed, of any number of sequences."""
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return graph

    def packed(q, k, v, log_alpha, cu_seqlens):
        return abc_attention(q, k, v, log_alpha, causal=True, cu_seqlens=cu_seqlens)

    compiled = torch.compile(packed, fullgraph=True, dynamic=True, backend=backend)
    for ends in ([0, 4, 5, 6, 9], [0, 7, 8, 17], [0, 2, 5, 6, 7, 15]):
        given = inputs(Case(ends[-1], batch=1)).to(device)
        cu_seqlens = torch.tensor(ends, device=device)
        assert_equal([compiled(*given, cu_seqlens)], [packed(*given, cu_seqlens)])
    assert len(graphs) == 1


# --- torch.library


def test_operators(device):
    """Schemas, fake implementations and gradients are what torch.library asks for."""
    from fairseq_memattn.attention.ops.abc.triton import decoding, operators

    given = inputs(CASE).leaves(torch.float32, device)
    state = MemoryState.empty(given.k, given.v, given.log_alpha)
    lengths = torch.tensor([0, 4, 9], device=device)
    check = partial(
        torch.library.opcheck,
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )
    check(operators.abc_causal, (*given, *state, None, 0.5, True, True))
    check(operators.abc_causal, (*given, *[None] * 3, lengths, 0.5, True, False))
    first = inputs(Case(1, batch=1)).to(device)
    state = MemoryState.empty(first.k, first.v, first.log_alpha)
    for operator in (decoding.abc_step, decoding.abc_step_):
        check(operator, (*first, *state, 0.5, True))


def test_second_derivatives_are_refused(device):
    given = inputs(CASE).leaves(torch.float32, device)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(attend(None, *given).sum(), given.v, create_graph=True)


# --- torch.utils.checkpoint


@pytest.mark.parametrize("use_reentrant", [False, full(True)])
def test_checkpoints(use_reentrant, device):
    """Also where one is inside another."""
    function = partial(attend, padding(CASE, device))
    inside = partial(checkpoint, function, use_reentrant=use_reentrant)
    outside = partial(checkpoint, inside, use_reentrant=use_reentrant)
    expected = run(function, inputs(CASE).leaves(torch.float32, device))
    for checkpointed in (inside, outside):
        leaves = inputs(CASE).leaves(torch.float32, device)
        out = checkpointed(*leaves)
        assert_equal([out], [expected["output 0"]])
        # Reentrant checkpoints have no torch.autograd.grad.
        torch.autograd.backward(out, torch.ones_like(out))
    plain = inputs(CASE).leaves(torch.float32, device)
    function(*plain).sum().backward()
    assert_equal([x.grad for x in leaves], [x.grad for x in plain])


# --- Autocast


def test_autocast(device):
    """Tokens in bfloat16, normalisers and memories in float32; as without autocast in bfloat16."""
    layer = ABCAttention(8, 2, slots=3, causal=True).to(device)
    x = torch.randn(2, 9, 8, device=device)
    seen = []

    class Dtypes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.namespace == "memattn":
                seen.append([x.dtype for x in args if isinstance(x, torch.Tensor)])
            return func(*args, **(kwargs or {}))

    with torch.autocast(device.type, dtype=torch.bfloat16), Dtypes():
        out, state = layer.step(x)
        out.float().sum().backward()
    assert out.dtype == torch.bfloat16
    assert {x.dtype for x in state} == {torch.float32}
    forward, _ = seen
    assert forward[:3] == [torch.bfloat16] * 3
    assert all(p.grad.dtype == torch.float32 for p in layer.parameters())
    with use_backend("chunked"), torch.autocast(device.type, dtype=torch.bfloat16):
        expected, _ = layer.step(x)
    torch.testing.assert_close(out, expected, rtol=0, atol=4e-2)


# --- Without waiting for the device


def on_meta(case, dtype=torch.float32):
    return inputs(case).leaves(dtype, "meta")


@pytest.mark.parametrize("packed", [False, True])
def test_nothing_is_read_back(packed, no_kernels):
    given, state = on_meta(Case(70, batch=1), torch.bfloat16), None
    lengths = torch.empty(4, dtype=torch.int32, device="meta") if packed else None
    mask = None if packed else torch.empty(1, 70, dtype=torch.bool, device="meta")
    with Recorder() as recorder:
        out = abc_attention(*given, causal=True, key_padding_mask=mask, cu_seqlens=lengths)
        torch.autograd.grad(out, tuple(given), torch.empty_like(out))
        if not packed:
            out, state = abc_step(*given, None, key_padding_mask=mask)
            torch.autograd.grad(out.sum() + state.keys.sum(), tuple(given))
    assert {"abc_causal", "abc_causal_backward"} <= set(recorder.calls)
    assert not READS & set(recorder.calls)


@pytest.mark.parametrize("shared", [False, True])
def test_a_step_in_place_allocates_its_output(shared, no_kernels):
    """And, beside it, the normaliser of a shared control."""
    given = on_meta(Case(1, shared=shared)).map(torch.Tensor.detach)
    state = MemoryState.empty(given.k, given.v, given.log_alpha)
    with Recorder() as recorder:
        out, after = abc_step(*given, state, in_place=True)
    assert all(new is old for new, old in zip(after, state, strict=True))
    assert recorder.allocated == out.nbytes
    assert recorder.peak == out.nbytes + (state.log_mass.nbytes if shared else 0)
    assert not READS & set(recorder.calls)


# --- Memory


@pytest.mark.parametrize("slots", [32, 64, 128])
@pytest.mark.parametrize("shape", [(8, 8, 1024, 64), (1, 16, 8192, 64), (1, 16, 32768, 128)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16])
def test_memory_of_the_backward_pass(dtype, shape, slots, no_kernels):
    """What the forward pass keeps and the backward pass takes, beside inputs and gradients."""
    sizes = [shape] * 3 + [(*shape[:3], slots)]
    given = [torch.empty(size, dtype=dtype, device="meta", requires_grad=True) for size in sizes]
    nbytes = sum(x.nbytes for x in given)
    with Recorder() as forward:
        out = abc_attention(*given, causal=True)
    kept, grad_out = forward.allocated, torch.empty_like(out)
    with Recorder() as backward:
        grads = torch.autograd.grad(out, given, grad_out)
    assert sum(x.nbytes for x in grads) == nbytes
    assert kept + backward.peak - nbytes <= 3.0 * nbytes


@pytest.mark.parametrize("shape", [(8, 8, 1024, 64), full((1, 16, 32768, 64))])
def test_launches_of_a_forward_and_backward_pass(shape, no_kernels):
    """Each of which takes Python as long as the kernels of a short input take the GPU."""
    given = [
        torch.empty(shape, dtype=torch.bfloat16, device="meta", requires_grad=True)
        for _ in range(4)
    ]
    with Recorder() as recorder:
        out = abc_attention(*given, causal=True)
        torch.autograd.grad(out, given, torch.empty_like(out))
    of_queries = ["queries_back"] * 2
    assert no_kernels == ["states", "scan", "attend", *of_queries, "scan_back", "tokens_back"]
    others = set(recorder.calls) - {"abc_causal", "abc_causal_backward"}
    assert others <= {"empty", "new_empty", "empty_like", "select", "unbind", "transpose", "detach"}


# --- Wrong products of a compiler


@pytest.mark.full
def test_the_kernels_test_themselves(device):
    from fairseq_memattn.attention.ops.abc.triton import selftest

    assert selftest.error(device, 16, 5) < selftest.WRONG / 2


def test_wrong_products_are_left_out(monkeypatch):
    """Once for each width and number of slots, with one warning."""
    from fairseq_memattn.attention.ops.abc.triton import launch, selftest

    gpu, errors = torch.device("cuda", 0), {16: 0.2, 32: 0.01, 64: torch.inf}
    asked = []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(selftest, "error", lambda *key: (asked.append(key), errors[key[2]])[1])
    monkeypatch.setattr(selftest, "tried", {})
    with warnings.catch_warnings(record=True) as warned:
        found = [selftest.may_use_wgmma(gpu, 64, slots) for slots in (16, 32, 64, 16, 64)]
    assert found == [False, True, False, False, False]
    assert len(asked) == 3 and len(warned) == 1 and "wrong on a GPU" in str(warned[0].message)
    sizes = launch.sizes(64, 64, torch.bfloat16, wgmma=False)
    assert sizes.chunk == sizes.tile == 32


# --- CUDA graphs


def test_a_step_keeps_the_storage_of_its_state(device):
    """As a graph of a step that is replayed reads and writes the same addresses."""
    case = Case(4)
    given = inputs(case).to(device)
    state = MemoryState.empty(given.k, given.v, given.log_alpha)
    addresses = [x.data_ptr() for x in state]
    for t in range(case.length):
        abc_step(*given.span(t, t + 1), state, in_place=True)
    assert [x.data_ptr() for x in state] == addresses
    expected = in_pieces(abc_step, given, [1] * case.length)[1]
    assert_equal(state, expected)


@needs_gpu
def test_a_graph_of_a_layer(device):
    """The example of docs/library.md."""
    attn = ABCAttention(64, 2, slots=8, causal=True).to(device).eval()
    tokens = torch.randn(9, 3, 1, 64, device=device)
    prompt, x = torch.randn(3, 5, 64, device=device), torch.zeros(3, 1, 64, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        y, state = attn.step(prompt)
        expected, _ = attn.step(torch.cat([prompt, *tokens], dim=1))
        attn.step(x, state)
        with torch.cuda.graph(graph):
            y, after = attn.step(x, state)
            for old, new in zip(state, after, strict=True):
                old.copy_(new)
        for t, token in enumerate(tokens):
            x.copy_(token)
            graph.replay()
            torch.testing.assert_close(y[:, 0], expected[:, 5 + t], rtol=0, atol=1e-4)


@needs_gpu
@pytest.mark.parametrize("step", [abc_step, additive_step])
def test_a_graph_of_training(step, device):
    """Forward and backward, from one memory to the next."""
    case = Case(70, "left")
    leaves, mask = inputs(case).leaves(torch.float32, device), padding(case, device)

    def train():
        out, state = step(*leaves, None, key_padding_mask=mask)
        grads = torch.autograd.grad(out.sum() + state.keys.sum(), tuple(leaves))
        return out.detach(), *grads

    # A graph that is still there would belong to the stream on which it was made.
    expected = train()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = train()
    graph.replay()
    assert_equal(results, expected)
