"""Every refusal of the public functions says what is wanted and what was given."""

from contextlib import nullcontext

import pytest
import torch
from abc_cases import Case, inputs

from fairseq_memattn.attention import (
    MemoryState,
    Window,
    abc_attention,
    abc_read,
    abc_step,
    abc_write,
    additive_attention,
    additive_step,
    kernel_attention,
    kernel_read,
    kernel_step,
    use_backend,
    window_attention,
    window_read,
    window_step,
)
from fairseq_memattn.attention.nn import (
    ABCAttention,
    GlobalMemoryAttention,
    MemorySlotAttention,
)

CASE = Case(5)  # 2 sentences, 2 heads, 5 tokens, 4 wide, 3 slots


def full(*args, **options):
    return abc_attention(*args, causal=False, **options)


def causal(*args, **options):
    return abc_attention(*args, causal=True, **options)


def step(*args, **options):
    return abc_step(*args, None, **options)


def by_triton():
    pytest.importorskip("triton")
    return use_backend("triton")


BACKENDS = pytest.mark.parametrize("backend", [nullcontext, by_triton])
EVERY_FORM = pytest.mark.parametrize("form", [full, causal, step])
WRONG_SHAPES = {
    "batch of k": (dict(k=(3, 2, 5, 4)), r"`k` must match `q` \(2, 2, 5, 4\), but is \(3, 2, 5, 4"),
    "heads of k": (dict(k=(2, 1, 5, 4)), r"`k` must match `q` .*but is \(2, 1, 5, 4\) instead"),
    "width of k": (dict(k=(2, 2, 5, 6)), r"`k` must match `q` .*but is \(2, 2, 5, 6\) instead"),
    "axes of k": (dict(k=(2, 5, 4)), r"`k` must have the four axes .*but is \(2, 5, 4\) instead"),
    "axes of q": (dict(q=(2, 5, 4)), r"`q` must have the four axes .*but is \(2, 5, 4\) instead"),
    "no queries": (dict(q=(2, 2, 0, 4)), r"`q` must .*none of them empty, but is \(2, 2, 0, 4\)"),
    "no sentences": (dict(q=(0, 2, 5, 4)), r"`q` must .*none of them empty, but is \(0, 2, 5, 4"),
    "length of v": (dict(v=(2, 2, 6, 4)), r"`v` must match `k` \(2, 2, 5, 4\), but is \(2, 2, 6"),
    "heads of v": (dict(v=(2, 1, 5, 4)), r"`v` must match `k` .*but is \(2, 1, 5, 4\) instead"),
    "width of v": (dict(v=(2, 2, 5, 6)), r"`v` must match `k` .*but is \(2, 2, 5, 6\) instead"),
    "batch of log_alpha": (
        dict(log_alpha=(1, 2, 5, 3)),
        r"`log_alpha` must be \(2, 2 or 1, 5, slots\), but is \(1, 2, 5, 3\) instead",
    ),
    "heads of log_alpha": (dict(log_alpha=(2, 3, 5, 3)), r"`log_alpha` must be .*\(2, 3, 5, 3\)"),
    "length of log_alpha": (dict(log_alpha=(2, 2, 4, 3)), r"`log_alpha` must be .*\(2, 2, 4, 3\)"),
    "axes of log_alpha": (dict(log_alpha=(2, 5, 3)), r"`log_alpha` must be .*\(2, 5, 3\) instead"),
    "no slots": (dict(log_alpha=(2, 2, 5, 0)), "`log_alpha` must have at least one slot"),
}


@EVERY_FORM
@pytest.mark.parametrize("shapes, message", WRONG_SHAPES.values(), ids=WRONG_SHAPES)
def test_shapes(form, shapes, message):
    wrong = {name: torch.zeros(shape) for name, shape in shapes.items()}
    with pytest.raises(ValueError, match=message):
        form(*inputs(CASE).replace(**wrong))


@EVERY_FORM
@pytest.mark.parametrize("shape", [(1, 5), (2, 4), (2, 1, 5)], ids=str)
def test_key_padding_mask(form, shape):
    mask = torch.zeros(shape, dtype=torch.bool)
    with pytest.raises(
        ValueError, match=r"`key_padding_mask` must be \(2, 5\) of torch.bool, but is \(.*instead"
    ):
        form(*inputs(CASE), key_padding_mask=mask)


@EVERY_FORM
def test_key_padding_mask_of_another_dtype(form):
    mask = torch.zeros(2, 5, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"but is \(2, 5\) of torch.uint8 instead"):
        form(*inputs(CASE), key_padding_mask=mask)


@pytest.mark.parametrize("form", [causal, step])
def test_causal_attention_over_another_length(form):
    with pytest.raises(ValueError, match="as many queries as keys, but got 4 queries and 5 keys"):
        form(*inputs(CASE.replace(length=4, source=5)))


def kernels(q, k, v, log_alpha, **options):
    return kernel_attention(q, k, v, log_gate=None, **options)


def windows(q, k, v, log_alpha, **options):
    return window_attention(q, k, v, Window(3), **options)


WRONG_OPTIONS = {
    "no chunk": (dict(chunk_size=0), "`chunk_size` must be at least 1, but is 0 instead"),
    "less": (dict(chunk_size=-3), "`chunk_size` must be at least 1, but is -3 instead"),
    "half": (dict(chunk_size=7.5), "`chunk_size` must be an int or None, but is of the type float"),
    "scale": (dict(scale="1"), "`scale` must be a float or an int or None, but is of the type str"),
    "causal": (dict(causal="yes"), "`causal` must be a bool, but is of the type str"),
    "ends": (dict(cu_seqlens=[0, 5]), "`cu_seqlens` must be a Tensor, but is of the type list"),
    "one": (dict(cu_seqlens=torch.zeros(1).int()), "at least two numbers in one axis, of torch"),
}


@BACKENDS
@pytest.mark.parametrize("options, message", WRONG_OPTIONS.values(), ids=WRONG_OPTIONS)
def test_options(options, message, backend):
    forms = {abc_attention: (), additive_attention: ("cu_seqlens",)}
    forms |= {kernels: ("scale", "cu_seqlens"), windows: ("chunk_size", "cu_seqlens")}
    for form, unknown in forms.items():
        if options.keys().isdisjoint(unknown):
            with backend(), pytest.raises((TypeError, ValueError), match=message):
                form(*inputs(CASE.replace(batch=1)), **{"causal": True, **options})


def test_a_wrong_scale_of_a_step():
    with pytest.raises(TypeError, match="`scale` must be a float or an int or None, but is of"):
        step(*inputs(CASE), scale="1")


WRONG_TENSORS = {
    "list": (torch.Tensor.tolist, "{} must be a Tensor, but is of the type list instead"),
    **{
        str(dtype): (
            lambda x, dtype=dtype: x.to(dtype),
            f"{{}} must be of torch.float16, .* float64, but is of {dtype} instead",
        )
        for dtype in (torch.int64, torch.bool, torch.complex64, torch.float8_e5m2)
    },
}
# The names of a function's arguments: q, k, v and log_alpha, or what is in their places.
NAMES = {
    full: "q k v log_alpha",
    causal: "q k v log_alpha",
    step: "q k v log_alpha",
    lambda q, k, v, phi: additive_attention(q, k, v, phi, causal=True): "q k v phi",
    lambda q, k, v, phi: additive_step(q, k, v, phi, None): "q k v phi",
    lambda q, k, v, _: window_step(q, k, v, Window(3), None): "q k v",
    lambda q, k, v, _: kernel_step(q, k, v, None): "phi_q phi_k v",
    lambda k, v, log_alpha, _: abc_write(k, v, log_alpha): "k v log_alpha",
}


@pytest.mark.parametrize("change, message", WRONG_TENSORS.values(), ids=WRONG_TENSORS)
def test_other_than_floating_point_tensors(change, message):
    for form, names in NAMES.items():
        for place, name in enumerate(names.split()):
            args = [*inputs(CASE.replace(width=3))]
            args[place] = change(args[place])
            with pytest.raises((TypeError, ValueError), match=message.format(f"`{name}`")):
                form(*args)


@EVERY_FORM
@pytest.mark.parametrize("name", ["k", "v", "log_alpha"])
def test_tensors_that_differ_from_q(form, name):
    args = inputs(CASE)
    wider, elsewhere = args.replace(**{name: getattr(args, name).double()}), args.to("meta")
    wanted = "`log_alpha` must be of torch.float32 or" if name == "log_alpha" else f"`{name}` must"
    with pytest.raises(ValueError, match=f"{wanted} .*torch.float32, but is of torch.float64"):
        form(*wider)
    with pytest.raises(ValueError, match=f"`{name}` must be on the device of `q`, cpu, but is on "):
        form(*args.replace(**{name: getattr(elsewhere, name)}))


@EVERY_FORM
@pytest.mark.parametrize("shared", [False, True])
def test_heads_after_positions(form, shared):
    args = inputs(CASE.replace(shared=shared))
    turned = args.replace(**{name: getattr(args, name).transpose(1, 2) for name in "qkv"})
    with pytest.raises(ValueError, match=r"instead; if `q` is \(B, T, H, D\), transpose `q`, `k`"):
        form(*turned)


@BACKENDS
@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize(
    "operation",
    [abc_step, additive_step, lambda *x: window_step(*x[:3], Window(3), x[4]),
     lambda *x: kernel_step(*x[:3], x[4])],
)  # fmt: skip
def test_state_of_another_dtype(operation, length, backend, device):
    args = inputs(CASE).to(device)
    with backend():
        _, state = operation(*args, None)
        field = state._fields[0]
        wider = state._replace(**{field: state[0].double()})
        elsewhere = state._replace(**{field: state[0].to("meta")})
        for given, message in (
            (wider, "of torch.float32 for these inputs, but is of torch.float64 instead"),
            (elsewhere, f"on the device of the inputs, {args.q.device}, but is on meta instead"),
        ):
            with pytest.raises(ValueError, match=f"`state.{field}` must be {message}"):
                operation(*inputs(CASE.replace(length=length)).to(device), given)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "layer",
    [
        ABCAttention(4, 2, slots=3),
        lambda x: ABCAttention(4, 2, slots=3, causal=True).step(x),
        lambda x: ABCAttention(4, 2, slots=3, source_dim=4).write(x),
        lambda x: GlobalMemoryAttention(4, 2)(x, x),
        lambda x: MemorySlotAttention(4, 2)(x[None], x[None]),
    ],
)
def test_inputs_of_another_dtype_than_the_layer(layer, dtype):
    message = f"must be of the layer's dtype, torch.float32, without autocast, but is of {dtype}"
    with pytest.raises(ValueError, match=message):
        layer(torch.randn(2, 5, 4, dtype=dtype))


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize(
    "other",
    [dict(batch=1), dict(heads=1), dict(slots=4), dict(width=6), dict(shared=True)],
    ids=str,
)
def test_state_of_other_inputs(other, length):
    _, state = abc_step(*inputs(CASE.replace(**other)), None)
    with pytest.raises(ValueError, match=r"`state` must have the shapes \[.*\] for these inputs"):
        abc_step(*inputs(CASE.replace(length=length)), state)


@pytest.mark.parametrize("state", [1, {}, ()], ids=repr)
def test_state_of_another_type(state):
    kind = type(state).__name__
    args = inputs(CASE)
    with pytest.raises(
        TypeError, match=f"`state` must be a MemoryState, but is of the type {kind}"
    ):
        abc_step(*args, state)
    with pytest.raises(
        TypeError, match=f"`state` must be a KernelState, but is of the type {kind}"
    ):
        kernel_read(args.q, state)
    with pytest.raises(
        TypeError, match=f"`state` must be a WindowState, but is of the type {kind}"
    ):
        window_read(args.q, state, Window(3))


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ([0, 6], r"`cu_seqlens` must rise from 0 to at most 5, but is \[0, 6\] instead"),
        ([1, 5], "`cu_seqlens` must rise from 0 to at most 5"),
        ([0, 3, 2], "`cu_seqlens` must rise from 0 to at most 5"),
        (
            [0.0, 5.0],
            "`cu_seqlens` must be at least two numbers in one axis, of torch.int32 or torch",
        ),
    ],
    ids=str,
)
@BACKENDS
def test_lengths_of_packed_sequences(ends, message, backend):
    with backend(), pytest.raises(ValueError, match=message):
        causal(*inputs(CASE.replace(batch=1)), cu_seqlens=torch.tensor(ends))


def test_lengths_on_another_device():
    lengths = torch.empty(2, dtype=torch.int32, device="meta")
    with pytest.raises(ValueError, match="`cu_seqlens` must be on the device of `q`, cpu, but is"):
        causal(*inputs(CASE.replace(batch=1)), cu_seqlens=lengths)


def test_a_state_that_cannot_be_overwritten():
    given = inputs(CASE)
    state = MemoryState.empty(given.k, given.v, given.log_alpha)
    expanded = state._replace(keys=state.keys[:1].expand_as(state.keys))
    with pytest.raises(
        ValueError, match="`in_place` needs contiguous tensors, but `state.keys` has the strides"
    ):
        abc_step(*given, expanded, in_place=True)
    shared = state._replace(values=state.keys)
    with pytest.raises(ValueError, match="`in_place` needs keys and values of their own in"):
        abc_step(*given, shared, in_place=True)


ON_DEVICES = {
    "x": (lambda here, there: ABCAttention(8, 2, slots=3, causal=True)(there(2, 5, 8)), "x"),
    "source": (
        lambda here, there: ABCAttention(8, 2, slots=3, causal=False, source_dim=8)(
            here(2, 5, 8), there(2, 5, 8)
        ),
        "source",
    ),
    "mask": (
        lambda here, there: ABCAttention(8, 2, slots=3, causal=True, control="gated")(
            here(2, 5, 8), key_padding_mask=there(2, 5) > 0
        ),
        "key_padding_mask",
    ),
    "memory": (
        lambda here, there: GlobalMemoryAttention(8, 2, sparsity="chunks")(
            here(2, 5, 8), there(2, 3, 8)
        ),
        "memory",
    ),
    "global mask": (
        lambda here, there: window_attention(
            *(here(2, 2, 5, 4),) * 3, Window(2), causal=True, global_mask=there(2, 5) > 0
        ),
        "global_mask",
    ),
}


@pytest.mark.parametrize("call, name", ON_DEVICES.values(), ids=ON_DEVICES)
def test_tensors_of_another_device(call, name):
    def there(*size):
        return torch.zeros(size, device="meta")

    with pytest.raises(ValueError, match=f"`{name}` must be on .* but is on meta instead"):
        call(torch.randn, there)


WRONG_KINDS = {
    "rfa_gate": (dict(control="rfa", rfa_gate="no"), "`rfa_gate` must be a bool, but is 'no'"),
    "stride": (dict(control="dilated", stride=2.5), "`stride` must be an int, but is 2.5"),
    "max_length": (dict(control="linformer", max_length=9.0), "`max_length` must be an int"),
    "positions": (
        dict(control="global", global_positions=(1.5,)),
        r"`global_positions` must be a tuple of ints, but is \(1.5,\)",
    ),
    "num_heads": (dict(num_heads="2"), "`num_heads` must be an int, but is '2' instead"),
    "dropout": (dict(dropout="0.1"), "`dropout` must be from 0 to below 1, but is '0.1' instead"),
}


@pytest.mark.parametrize("options, message", WRONG_KINDS.values(), ids=WRONG_KINDS)
def test_options_of_another_type(options, message):
    with pytest.raises(ValueError, match=message):
        ABCAttention(**({"embed_dim": 8, "num_heads": 2, "slots": 4, "causal": True} | options))


@pytest.mark.parametrize(
    "q, message",
    [
        (torch.zeros(2, 2, 5), r"`q` must be \(2, 2, T, 4\) for this state, but is \(2, 2, 5\)"),
        (torch.zeros(1, 2, 5, 4), r"`q` must be \(2, 2, T, 4\) .* but is \(1, 2, 5, 4\)"),
        (torch.zeros(2, 2, 5, 3), r"`q` must be \(2, 2, T, 4\) .* but is \(2, 2, 5, 3\)"),
        (torch.zeros(2, 2, 5, 4, dtype=torch.int64), "`q` must be of torch.float16"),
    ],
)
def test_queries_that_do_not_fit_a_memory(q, message):
    state = abc_write(*(torch.randn(2, 2, 6, size) for size in (4, 4, 3)))
    with pytest.raises(ValueError, match=message):
        abc_read(q, state)
    with pytest.raises(TypeError, match="`state.keys` must be a Tensor"):
        abc_read(torch.zeros(2, 2, 5, 4), None)
