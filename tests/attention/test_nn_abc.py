"""ABCAttention with every control against its definition, and what it works under."""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import layers
import pytest
import torch
from cases import Case, assert_equal, draw, fixed_sum
from cases import padding as padding_of
from full import full
from pairwise import rows
from recurrences import GLOBAL, LONGEST, STRIDE, D, H, M, attend
from torch.nn.functional import linear
from torch.testing import assert_close

from fairseq_memattn.attention import concatenate_rows, use_backend
from fairseq_memattn.attention.controls import Shared, Tokens, control_class
from fairseq_memattn.attention.controls.registry import all_controls
from fairseq_memattn.attention.nn import ABCAttention, Rotary

E, SOURCE = H * D, 6  # the sizes of x and of a source


class Design(NamedTuple):
    control: str
    options: dict = {}


STRIDED = {"stride": STRIDE}
DESIGNS = {name: Design(name) for name in all_controls()} | {
    "global": Design("global", STRIDED),
    "local_global": Design("local_global", STRIDED | dict(slots=4, global_positions=GLOBAL)),
    "dilated": Design("dilated", STRIDED),
    "strided": Design("strided", STRIDED),
    "sinks": Design("sinks", dict(sink_tokens=2, slots=5)),
    "local_mlp": Design("local_mlp", dict(sink_tokens=1, local_window=3, slots=6)),
    "local_mlp, no first": Design("local_mlp", dict(sink_tokens=0, slots=4)),
    "rfa": Design("rfa", dict(slots=4)),
    "rfa, gate": Design("rfa", dict(slots=4, rfa_gate=True)),
    "routed, 1": Design("routed", dict(top_k=1)),
    "routed_gated, 1": Design("routed_gated", dict(top_k=1, share_control=True)),
    "clustering, bits": Design("clustering", dict(cluster_bits=5)),
    "mlp, sigmoid": Design("mlp", dict(activation="sigmoid", bias=False)),
    "mlp, one control": Design("mlp", dict(share_control=True)),
    "gated, one control": Design("gated", dict(share_control=True, gate_horizon=9)),
    "linformer, one control": Design("linformer", dict(share_control=True)),
    "workspace, one control": Design("workspace", dict(share_control=True)),
}
KINDS = ("causal", "encoder", "cross")
WITHOUT_CAUSAL = [n for n, d in DESIGNS.items() if control_class(d.control).causal_refusal]
CAUSAL = [name for name in DESIGNS if name not in WITHOUT_CAUSAL]
each_causal = pytest.mark.parametrize("name", CAUSAL)


def every(*axes):
    """Pairs of a design with a kind that it has, and of both with values of further axes."""
    chosen = rows([CAUSAL, KINDS, *axes]) + rows([WITHOUT_CAUSAL, KINDS[1:], *axes])
    return sorted(chosen, key=str)


def layer(name, kind, dtype=torch.float32, heads="equal", **options):
    """heads: "grouped" is two heads of queries for each of keys, norms and rotary positions."""
    torch.manual_seed(1)
    control, own = DESIGNS[name]
    given = dict(slots=M, max_positions=LONGEST, causal=kind == "causal") | own | options
    source_dim = SOURCE if kind == "cross" else None
    count = H
    if heads == "grouped":
        given |= dict(num_kv_heads=H, head_dim=D, qk_norm=True)
        given["rotary"] = None if kind == "cross" else Rotary(100.0)
        count *= 2
    made = ABCAttention(E, count, control=control, source_dim=source_dim, **given)
    with torch.no_grad():
        for weight in (
            p for n, p in made.named_parameters() if n.endswith(("bias", "norm.weight"))
        ):
            weight.normal_()
    return made.to(dtype)


def inputs(kind, length=7, source=LONGEST, batch=3, dtype=torch.float32):
    """x, and the source of cross attention."""
    shapes = {"x": (batch, length, E), "source": (batch, source, SOURCE)}
    drawn = draw(length, **shapes).leaves(dtype, "cpu")
    return [drawn.x, drawn.source] if kind == "cross" else [drawn.x]


def padding(pad, length, batch=3):
    mask = padding_of(Case(length, pad, batch=batch))
    return {} if mask is None else {"key_padding_mask": mask}


def seen(out, mask):
    """Without the outputs at padding, which are undefined."""
    return out if mask is None else out.masked_fill(mask.unsqueeze(2), 0.0)


class Literal:
    """The layer from its weights, by the definition of its control."""

    def __init__(self, module, name):
        self.module, self.name = module, DESIGNS[name].control

    def heads(self, projection, x, norm=None, mask=None):
        weight, bias = projection.weight, projection.bias
        heads = linear(x, weight, bias).unflatten(2, (-1, D)).transpose(1, 2)
        if norm is not None:
            heads = heads * (heads.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * norm.weight
        if projection is self.module.v_proj or self.module.control.rotates:
            return heads
        real = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else ~mask
        return self.turn(heads, (real.cumsum(1) - 1)[:, None, :, None])

    def turn(self, x, position):
        if self.module.rotary is None:
            return x
        angles = torch.as_tensor(position) * torch.tensor([1.0, 0.1], dtype=x.dtype)
        pairs = torch.complex(*x.split(2, dim=-1)) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([pairs.real, pairs.imag], dim=-1)

    def __call__(self, x, source=None, key_padding_mask=None):
        module, mask = self.module, key_padding_mask
        source = x if source is None else source
        q = self.heads(module.q_proj, x, module.q_norm, mask)
        k = self.heads(module.k_proj, source, module.k_norm, mask)
        v = self.heads(module.v_proj, source)
        repeats = q.shape[1] // H
        outs = [  # of the first queries of all groups, of the second ones, ...
            attend(
                *(module.control, self.name, part, k, v, source, mask),
                causal=module.causal,
                turn=self.turn,
            )
            for part in (q[:, r::repeats] for r in range(repeats))
        ]
        out = torch.stack(outs, dim=2).flatten(1, 2).transpose(1, 2).flatten(2)
        return linear(out, module.out_proj.weight, module.out_proj.bias)


# --- What it computes


HEADS = ["equal", "grouped"]


@pytest.mark.parametrize(
    "name, kind, pad, length, heads", every(["none", "both", "holes"], [1, LONGEST], HEADS)
)
def test_every_control_is_its_definition(name, kind, pad, length, heads):
    module = layer(name, kind, torch.double, heads)
    source = 5 if length == LONGEST else LONGEST
    masks = padding(pad, source if kind == "cross" else length)

    def defined(outs, key_padding_mask=None):
        return outs if kind == "cross" else seen(outs, key_padding_mask)

    layers.check_oracle(
        *(module, Literal(module, name), *inputs(kind, length, source, dtype=torch.double)),
        tolerance=1e-8,
        compared=defined,
        **masks,
    )


STEPS = [[1] * LONGEST, [2, 8, 1]]


@pytest.mark.parametrize("name, pad, sizes, heads", rows([CAUSAL, ["none", "both"], STEPS, HEADS]))
def test_steps_are_the_causal_form(name, pad, sizes, heads):
    module = layer(name, "causal", torch.double, heads).eval()
    (x,) = inputs("causal", LONGEST, dtype=torch.double)
    mask = padding(pad, LONGEST).get("key_padding_mask")
    expected = seen(module(x, key_padding_mask=mask), mask)
    parts, state, start = [], None, 0
    real = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else ~mask
    positions = None if module.rotary is None else real.cumsum(1) - 1
    for size in sizes:
        at = slice(start, start + size)
        given = {} if positions is None else {"positions": positions[:, at]}
        here = None if mask is None else mask[:, at]
        before, values = state, state and [tensor.clone() for tensor in state]
        out, state = module.step(x[:, at], state, key_padding_mask=here, **given)
        if before is not None:
            assert_equal(before, values)
        parts.append(out)
        start += size
    assert_close(seen(torch.cat(parts, dim=1), mask), expected)


@pytest.mark.parametrize("name, heads", rows([CAUSAL, HEADS]))
def test_packed_sequences_are_attended_to_one_by_one(name, heads):
    module = layer(name, "causal", torch.double, heads).eval()
    (x,) = inputs("causal", LONGEST, batch=1, dtype=torch.double)
    ends = [0, 4, 4, 5, 10]

    def packed(x):
        return module(x, cu_seqlens=torch.tensor(ends, dtype=torch.int32))

    def one_by_one(x):
        parts = [module(x[:, a:b]) for a, b in pairwise(ends) if b > a]
        nothing = x.new_zeros(1, LONGEST - ends[-1], module.out_proj.in_features)
        return torch.cat([*parts, module.out_proj(nothing)], dim=1)

    assert_close(layers.results(packed, module, [x]), layers.results(one_by_one, module, [x]))


@each_causal
def test_gradients_pass_through_the_state(name):
    module = layer(name, "causal", torch.double).eval()
    (x,) = inputs("causal", dtype=torch.double)

    def in_steps(x):
        first, state = module.step(x[:, :4])
        second, state = module.step(x[:, 4:5], state)
        third, _ = module.step(x[:, 5:], state)
        return torch.cat([first, second, third], dim=1)

    assert_close(layers.results(in_steps, module, [x]), layers.results(module, module, [x]))


@each_causal
def test_a_state_is_reordered_and_does_not_grow(name):
    module = layer(name, "causal", torch.double).eval()
    (x,) = inputs("causal", LONGEST, dtype=torch.double)
    _, state = module.step(x[:, :1])
    shapes = [(tensor.shape, tensor.dtype) for tensor in state]
    for t in range(1, 6):
        _, state = module.step(x[:, t : t + 1], state)
        assert [(tensor.shape, tensor.dtype) for tensor in state] == shapes
    _, at_once = module.step(x[:, :6])
    assert [(tensor.shape, tensor.dtype) for tensor in at_once] == shapes
    for tensor in at_once:  # not a view, which would keep the whole prompt alive
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    order = torch.tensor([2, 0, 0, 1])
    out, _ = module.step(x[order, 6:], state.reorder(order))
    assert_close(out, module(x[order])[:, 6:])


@each_causal
def test_rows_that_have_read_different_lengths_are_one_batch(name):
    module = layer(name, "causal", torch.double).eval()
    (x,) = inputs("causal", LONGEST, dtype=torch.double)
    expected, starts = module(x), [6, 1, 3]
    state = concatenate_rows(
        [module.step(row[None, :start])[1] for row, start in zip(x, starts, strict=True)]
    )
    places = torch.arange(3), torch.tensor(starts)
    for _ in range(2):
        out, state = module.step(x[places].unsqueeze(1), state)
        assert_close(out.squeeze(1), expected[places])
        places = places[0], places[1] + 1


@pytest.mark.parametrize("name, pad, heads", rows([list(DESIGNS), ["none", "both"], HEADS]))
def test_a_memory_that_is_written_once_is_read_often(name, pad, heads):
    module = layer(name, "cross", torch.double, heads).eval()
    x, source = inputs("cross", dtype=torch.double)
    masks = padding(pad, LONGEST)
    expected = module(x, source, **masks)
    memory = module.write(source, **masks)
    assert_close(module.read(x, memory), expected)
    for t in range(x.shape[1]):
        assert_close(module.read(x[:, t : t + 1], memory), expected[:, t : t + 1])
    order = torch.tensor([2, 0, 0, 1])
    assert_close(module.read(x[order], memory.reorder(order)), expected[order])


def test_dropout_is_of_training_alone():
    module, x = layer("mlp", "causal", dropout=0.5), inputs("causal")
    assert not torch.equal(module(*x), module(*x))
    assert torch.equal(module.eval()(*x), module(*x))


@pytest.mark.parametrize("name", [name for name in CAUSAL if "," not in name])
def test_a_state_is_of_its_control(name, tmp_path):
    """It is loaded as it is, continued by its own control and refused by every other."""
    module = layer(name, "causal", heads="grouped").eval()
    (x,) = inputs("causal")
    positions = torch.arange(x.shape[1])
    _, state = module.step(x[:, :4])
    torch.save(state, tmp_path / "state.pt")
    loaded = torch.load(tmp_path / "state.pt", weights_only=True)
    assert type(loaded) is type(state) is type(state.reorder(torch.tensor([0])))
    outs = [module.step(x[:, 4:], kept, positions=positions[4:])[0] for kept in (state, loaded)]
    assert_equal(*([out] for out in outs))
    assert_close(outs[0], module(x, positions=positions)[:, 4:])
    for other in (layer(other, "causal") for other in CAUSAL if name != DESIGNS[other].control):
        with pytest.raises(TypeError, match=f"State, but is of the type {type(state).__name__}"):
            other.step(x, state)


# --- What it works under


CHECKS = ["autocast", "checkpointing", "copies", "state_dict", "graph_is_freed"]


@pytest.mark.parametrize(
    "name, kind, pad, check",
    [case for case in every(["left", "right"], CHECKS) if "," not in case[0]],
)
def test_it_works_under(name, kind, pad, check):
    make = partial(layer, name, kind, dropout=0.2)
    x = inputs(kind)
    options = padding(pad, x[-1].shape[1])
    if check == "autocast" and name == "clustering":
        options["tolerance"] = 1.0  # rounding may move a key to another cluster
    given = make if check == "state_dict" else make()
    getattr(layers, f"check_{check}")(given, *x, **options)


FEW = [("mlp", "causal"), ("gated", "causal"), ("window", "causal"), ("linformer", "causal")]


@pytest.mark.parametrize(
    "name, kind", [case if tuple(case) in FEW else full(*case) for case in every()]
)
def test_second_derivatives(name, kind):
    module, x = layer(name, kind).eval(), inputs(kind)
    # Before the first token, the lengths that rfa divides by are 0, where they have no derivative.
    pad = "right" if name.startswith("rfa") else "left"
    with use_backend("naive"):
        layers.check_second_derivatives(module, *x, **padding(pad, x[-1].shape[1]))


@pytest.mark.parametrize("name, length", [("mlp", 65), ("gated", 7), ("linformer", 7)])
def test_second_derivatives_by_chunks_are_refused(name, length):
    x = inputs("causal", length)[0]
    out = layer(name, "causal")(x)
    with pytest.raises(RuntimeError, match=r'use_backend\("naive"\)'):
        torch.autograd.grad(fixed_sum(out), x, create_graph=True)


# Whether any slot is read while it is empty, and whether write logits rise too steeply.
TWO_NUMBERS, SHORT = {"abc/chunked.py"}, {"abc/short.py"}
# Whether padding is before a token.
PLACES = {"ops/common.py"}


@pytest.mark.parametrize(
    "name, kind, pad, broken_in",
    [
        ("mlp", "encoder", "left", set()),
        full("clustering", "cross", "right", set()),
        ("rfa, gate", "causal", "left", set()),
        full("window", "causal", "none", set()),
        full("local_global", "encoder", "none", set()),
        full("dilated", "causal", "left", PLACES),
        ("mlp", "causal", "none", SHORT),
        *(full(name, "cross", "left", set()) for name in ("linformer", "t2r")),
        *(full(name, "cross", "right", set()) for name in ("gated", "workspace")),
        *(full(name, "encoder", "none", set()) for name in ("compressive", "global", "random")),
        *(full("window", kind, "none", set()) for kind in ("encoder", "cross")),
        full("strided", "causal", "none", set()),
        full("local_global", "cross", "none", set()),
        full("linformer", "causal", "none", TWO_NUMBERS),
        full("local_mlp", "causal", "none", TWO_NUMBERS),
        full("local_mlp", "encoder", "left", PLACES),
        full("sinks", "causal", "none", set()),
        full("routed", "cross", "left", set()),
    ],
)
def test_compile(name, kind, pad, broken_in):
    module, x = layer(name, kind).eval(), inputs(kind)
    layers.check_compile(module, *x, broken_in=broken_in, **padding(pad, x[-1].shape[1]))


# --- Layers that share a control


def test_layers_share_a_control():
    first = layer("mlp", "causal")
    second = ABCAttention(E, H, control=first.control, causal=True)
    assert second.control is first.control and second.control.slots == M
    both = torch.nn.ModuleList([first, second])
    assert sum(p is first.control.proj.weight for p in both.parameters()) == 1
    (x,) = inputs("causal")
    fixed_sum(second(first(x))).backward()
    assert first.control.proj.weight.grad.any()
    assert_close(second.eval()(x), Literal(second, "mlp")(x))


@pytest.mark.parametrize("kind", ["encoder", "cross"])
def test_shared_control_vectors_are_computed_once(kind, monkeypatch):
    first = layer("mlp", kind).eval()
    size = first.source_dim if kind == "cross" else None
    second = ABCAttention(E, H, control=first.control, source_dim=size).eval()
    x = inputs(kind)
    calls = []
    control, forward = first.control, type(first.control).forward
    monkeypatch.setattr(control, "forward", lambda x: calls.append(x) or forward(control, x))
    shared = Shared()
    outs = [lay(*x, shared=shared.for_layer(n)) for n, lay in enumerate((first, second))]
    assert len(calls) == 1
    assert_close(outs, [first(*x), second(*x)])
    assert len(calls) == 3
    other = [tensor.detach() + 1 for tensor in x]
    assert_close(first(*other, shared=shared), first(*other))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("number", [1, 3])
def test_a_workspace_passes_through_the_layers(number, tied):
    """Equation 16: a layer begins with the memory of the nearest layer below."""
    first = layer("workspace", "encoder", torch.double)
    second = ABCAttention(E, H, control=first.control).double()
    if not tied:
        torch.manual_seed(2)
        second = ABCAttention(E, H, slots=M, control="workspace").double()
    (x,) = inputs("encoder", dtype=torch.double)
    shared = Shared()
    below = first(x, shared=shared.for_layer(0))
    out = second(x, shared=shared.for_layer(number))
    assert_close(below, first(x))
    control, memory = first.control, first.control.memory.expand(len(x), -1, -1)
    phi = control.log_alpha(x, Tokens(x)).softmax(dim=2)
    values = control.v_proj(x).unflatten(2, (H, -1)).transpose(1, 2)
    update = (phi.transpose(2, 3) @ values).transpose(1, 2).flatten(2)
    memory = torch.nn.functional.layer_norm(memory + update, (E,))
    phi = second.control.look(memory, x).softmax(dim=2).transpose(2, 3)
    q, k, v = second.project(x, x)
    expected = torch.nn.functional.scaled_dot_product_attention(q, phi @ k, phi @ v)
    assert_close(out, second.join(expected))
    assert not torch.allclose(out, second(x))


@pytest.mark.parametrize("control", ["global", "local_global", "random", "rfa", "linformer"])
@pytest.mark.parametrize("assign", [False, True])
def test_deferred_initialisation(control, assign):
    """The weights, and what no checkpoint holds."""

    def build():
        options = {"stride": 4} if "global" in control else {}
        return ABCAttention(8, 2, slots=4, causal=True, control=control, **options)

    saved = build()
    with torch.device("meta"):
        made = build()
    if not assign:
        made.to_empty(device="cpu")
    made.load_state_dict(saved.state_dict(), assign=assign)
    x = torch.randn(2, 7, 8)
    torch.testing.assert_close(made.eval()(x), saved.eval()(x))


def test_steps_where_half_precision_is_the_default():
    layer = ABCAttention(8, 2, slots=4, causal=True)
    x, mask = torch.randn(1, 3, 8), torch.tensor([[True, False, False]])
    torch.set_default_dtype(torch.float16)
    try:
        out, state = layer.step(x[:, :1], key_padding_mask=mask[:, :1])
        out, _ = layer.step(x[:, 1:2], state)
    finally:
        torch.set_default_dtype(torch.float32)
    assert out.isfinite().all()


@pytest.mark.parametrize("control", ["mlp", "window", "sinks", "local_mlp"])
@pytest.mark.parametrize("causal", [True, False])
def test_weights_make_up_the_output(control, causal):
    """Of grouped and rotated heads with padding; in causal attention, for the last token."""
    torch.manual_seed(3)
    given = {"slots": 8, "control": control, "rotary": Rotary(10.0), "num_kv_heads": 2}
    layer = ABCAttention(16, 4, causal=causal, **given).double().eval()
    x, mask = torch.randn(2, 15, 16).double(), torch.zeros(2, 15, dtype=torch.bool)
    mask[1, :3] = True
    for length in (5, 13, 15):
        part, padding = x[:, :length], mask[:, :length]
        tokens = layer.tokens(part, padding)
        phi, p = layer.inspect(part, tokens)
        v = layer.split(layer.v_proj(part)).masked_fill(padding[:, None, :, None], 0.0)
        found, expected = p @ phi.mT @ layer.of_queries(v), layer.attend(part, tokens)
        seen = slice(-1, None) if causal else slice(3, None)
        torch.testing.assert_close(found[:, :, seen], expected[:, :, seen])
