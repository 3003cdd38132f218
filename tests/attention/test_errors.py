"""What is refused, with what is wanted and what was given: a row for a kind of check."""

from functools import partial

import pytest
import torch

from fairseq_memattn.attention import (
    MemoryState,
    Window,
    abc_attention,
    abc_read,
    abc_step,
    abc_write,
    additive_attention,
    additive_step,
    global_memory_attention,
    kernel_attention,
    kernel_read,
    kernel_step,
    lsh_memory_attention,
    mem_attention,
    mixture_attention,
    relative_position_bucket,
    select_sequences,
    slot_position_bias,
    window_attention,
    window_memory_attention,
    window_read,
    window_step,
    window_write,
)
from fairseq_memattn.attention.controls import Sizes, make_control
from fairseq_memattn.attention.controls.rfa import RandomFeatures
from fairseq_memattn.attention.nn import (
    ABCAttention,
    GlobalMemoryAttention,
    MemorySlotAttention,
    SlotPositionBias,
)

# 2 sentences or 1, 2 heads, 5 tokens, 4 wide, 3 slots; layers of 8 with 2 heads.
X, ALPHA, X8 = torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 3), torch.randn(2, 5, 8)
ONE = dict(q=X[:1], k=X[:1], v=X[:1], log_alpha=ALPHA[:1])
MASK = torch.zeros(2, 5, dtype=torch.bool)
SEQUENCES = torch.randn(2, 3, 2, 7, 4)
zeros, meta = torch.zeros, partial(torch.zeros, device="meta")

abc = partial(abc_attention, q=X, k=X, v=X, log_alpha=ALPHA, causal=True)
step = partial(abc_step, q=X, k=X, v=X, log_alpha=ALPHA, state=None)
additive = partial(additive_attention, q=X, k=X, v=X, phi=ALPHA, causal=True)
kernel = partial(kernel_attention, phi_q=X, phi_k=X, v=X, causal=True)
kernel_steps = partial(kernel_step, phi_q=X, phi_k=X, v=X, state=None)
window = partial(window_attention, q=X, k=X, v=X, window=Window(3))
window_steps = partial(window_step, q=X, k=X, v=X, window=Window(3), state=None)
memory = dict.fromkeys(("q_mem", "k_mem", "v_mem"), X[:, :, :3])
chunks = partial(global_memory_attention, q=X, k=X, v=X, chunk_size=4, **memory)
around = partial(window_memory_attention, q=X, k=X, v=X, window=Window(3), **memory)
lsh = partial(lsh_memory_attention, qk=X, v=X, **memory)
slots = partial(mem_attention, q=SEQUENCES, k=SEQUENCES, v=SEQUENCES, slots=2)
select = partial(select_sequences, query=zeros(2, 4, 12), key=zeros(2, 3, 12))
mixture = partial(mixture_attention, q=X, k=SEQUENCES, v=SEQUENCES, selection=zeros(2, 5, 3))

buckets = partial(relative_position_bucket, torch.arange(3), bidirectional=True)
biases = partial(slot_position_bias, table=zeros(33, 2), sequences=2, slots=1, length=3)

MASKED = r"`key_padding_mask` must be \(2, 5\) of torch.bool, but is .* instead"
FOUR = r"must be \(B, H, length, \w+\), none of them empty, but is \(2, 5, 4\) instead"
OTHER = r"but is \(2, 2, 6, 4\) instead"
LONGER = zeros(2, 2, 6, 4)
OPERATIONS = [
    # Shapes
    (abc, dict(q=X[0:0]), r"`q` must .*none of them empty, but is \(0, 2, 5, 4\)"),
    (abc, dict(k=X[:, 0]), f"`k` {FOUR}"),
    (step, dict(k=X[..., :3]), r"`k` must be \(2, 2, 5, 4\), but is \(2, 2, 5, 3\) instead"),
    (abc, dict(v=LONGER), rf"`v` must be .*, {OTHER}"),
    (abc, dict(log_alpha=ALPHA[:1]), r"`log_alpha` must be \(2, 2 or 1, 5, slots\), but is \(1"),
    (step, dict(log_alpha=ALPHA[..., :0]), "`log_alpha` must have at least one slot"),
    (
        partial(abc, **dict.fromkeys("qkv", X.transpose(1, 2))),
        {},
        r"`log_alpha` must be \(2, 5 or 1, 2, slots\), but is \(2, 2, 5",
    ),
    (kernel, dict(phi_q=X[:, 0]), f"`phi_q` {FOUR}"),
    (kernel, dict(phi_k=X[..., :3]), r"`phi_k` must be \(2, 2, 5, 4\), but is"),
    (kernel_steps, dict(v=LONGER), rf"`v` must be \(2, 2, 5, D\), {OTHER}"),
    (kernel, dict(log_gate=zeros(2, 3, 5)), r"`log_gate` must be \(2, 2 or 1, 5\), but is \("),
    (window, dict(v=LONGER), rf"`v` must be .*, {OTHER}"),
    (window_steps, dict(k=X[:1], v=X[:1]), r"`k` must be \(2, 2, 5, 4\), but is"),
    (window_steps, dict(q=X[:, 0]), f"`q` {FOUR}"),
    (chunks, dict(k=LONGER), rf"`k` must be .*, {OTHER}"),
    (around, dict(q_mem=zeros(3, 4)), r"`q_mem` must be \(2, 2, M, 4\), but is \(3, 4\) instead"),
    (chunks, dict(v_mem=X[:, :, :0]), r"`v_mem` must be \(2, 2, 3, 4\), but is"),
    (lsh, dict(v=LONGER), rf"`v` must be .*, {OTHER}"),
    (slots, dict(k=X), r"`k` must .*\(2, 2, 5, 4\) instead"),
    (slots, dict(bias=zeros(3, 2, 7, 12)), r"`bias` must be \(3, 2, 7, 11\), but is .*12\) inst"),
    (select, dict(key=zeros(2, 3, 6)), r"`key` must be \(2, K, 12\), but is \(2, 3, 6\) instead"),
    (select, dict(bias=zeros(3)), r"`bias` must be \(2, \d, 3\), but is \(3,\) instead"),
    (select, dict(absent=zeros(2, 4).bool()), r"`absent` must be \(2, 3\) of torch.bool"),
    (mixture, dict(selection=zeros(2, 4, 3)), r"`selection` must be \(2, 5, sequences\), but is"),
    (mixture, dict(selection=zeros(2, 5, 2)), r"`state` must have the shapes \["),
    (
        window,
        dict(memory=(X, X[:, :, :2])),
        r"`memory` must be \(2, 2, 5, 4\), but is \(2, 2, 2, 4\) instead",
    ),
    # Masks
    *((form, dict(key_padding_mask=MASK[:, 1:]), MASKED) for form in (abc, additive, kernel)),
    *((form, dict(key_padding_mask=MASK.int()), MASKED) for form in (step, window, chunks, lsh)),
    (kernel_steps, dict(key_padding_mask=MASK.int()), MASKED),
    (window_steps, dict(key_padding_mask=MASK.int()), MASKED),
    (window, dict(global_mask=MASK.int()), r"`global_mask` must be \(2, 5\) of torch.bool, but"),
    (slots, dict(key_padding_mask=zeros(2, 3, 7).bool()), r"must be \(2, 3, 5\) of torch.bool"),
    (mixture, dict(key_padding_mask=zeros(2, 3, 7)), r"must be \(2, 3, 7\) of torch.bool, but is"),
    (partial(window_write, X, X, Window(3), MASK[:1]), {}, MASKED),
    # Causal attention over another length
    *(
        (form, {name: LONGER}, "as many queries as keys, but got 6 queries and 5 keys")
        for form, name in ((abc, "q"), (kernel_steps, "phi_q"), (window, "q"), (window_steps, "q"))
    ),
    (kernel, dict(causal=False, log_gate=zeros(2, 2, 5)), "`log_gate` needs causal attention"),
    # Numbers
    *(
        (form, dict(chunk_size=0), "`chunk_size` must be at least 1, but is 0 instead")
        for form in (abc, kernel, chunks, lsh)
    ),
    (abc, dict(chunk_size=7.5), "`chunk_size` must be an int or None, but is of the type float"),
    (window, dict(causal="yes"), "`causal` must be a bool, but is of the type str"),
    (kernel, dict(floor=1.5), "at least 0 and at most 1, but is 1.5 instead"),
    (lsh, dict(rounds=0), "`rounds` must be at least 1, but is 0 instead"),
    (lsh, dict(buckets=3), "`buckets` must be even and at least 2, but is 3 instead"),
    (slots, dict(slots=7), "`slots` must be between 1 and 6, .* but is 7 instead"),
    (partial(Window, 4), dict(stride=0), "`window.stride` must be at least 1, but is 0 instead"),
    (partial(Window, 4), dict(stride=3, dilation=2), "only one of .* above 1, but they are 2"),
    (buckets, dict(buckets=31), "`buckets` must be even, .* but is 31 instead"),
    (buckets, dict(bidirectional=False, max_distance=16), "above the 16 distances .* is 16 inst"),
    (biases, dict(length=0), "`length` must be at least 1, but is 0 instead"),
    (biases, dict(table=zeros(34, 2)), "`buckets` must be even, .* is 33 inst"),
    # Dtypes and devices
    (abc, dict(q=X.tolist()), "`q` must be a Tensor, but is of the type list instead"),
    (additive, dict(phi=ALPHA.bool()), "`phi` must be of torch.float16, .* but is of torch.bool"),
    (window_steps, dict(k=X.long()), "`k` must be of torch.float16, .* but is of torch.int64"),
    (kernel_steps, dict(v=X + 0j), "`v` must be of torch.float16, .* but is of torch.complex64"),
    (step, dict(k=X.double()), "`k` must have the dtype of `q`, torch.float32, but is of"),
    (abc, dict(log_alpha=ALPHA.double()), "`log_alpha` must be of torch.float32 or"),
    (abc, dict(v=X.to("meta")), "`v` must be on the device of `q`, cpu, but is on meta instead"),
    (window, dict(global_mask=MASK.to("meta")), "`global_mask` must be on .* is on meta instead"),
    # Packed sequences
    (partial(abc, **ONE), dict(cu_seqlens=[0, 5]), "`cu_seqlens` must be a Tensor, but is of"),
    (partial(abc, **ONE), dict(cu_seqlens=zeros(1).int()), "at least two numbers in one axis"),
    *(
        (partial(abc, **ONE), dict(cu_seqlens=torch.tensor(ends)), "must rise from 0 to at most 5")
        for ends in ([0, 6], [1, 5], [0, 3, 2])
    ),
    (partial(abc, **ONE), dict(cu_seqlens=meta(2).int()), "`cu_seqlens` must be on the device of"),
]  # fmt: skip


@pytest.mark.parametrize("call, wrong, message", OPERATIONS)
def test_operations(call, wrong, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(**wrong)


STEPS = {
    "abc": (step, "log_alpha", lambda state: abc_read(X, state)),
    "additive": (partial(additive_step, q=X, k=X, v=X, phi=ALPHA), "phi", None),
    "kernel": (kernel_steps, "v", lambda state: kernel_read(X, state)),
    "window": (window_steps, "v", lambda state: window_read(X, state, Window(3))),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("length", [1, 5])
def test_states(name, length):
    """Of another type, dtype or device, or of other inputs."""
    call, _, read = STEPS[name]
    names = [key for key in call.keywords if key not in ("window", "state")]
    given = {key: call.keywords[key][:, :, :length] for key in names}
    _, state = call(state=None)
    field, first = state._fields[0], state[0]
    for other, message in (
        (1, f"`state` must be a {type(state).__name__}, but is of the type int"),
        (state._replace(**{field: first.double()}), f"`state.{field}` must be of torch.float32 "),
        (state._replace(**{field: first.to("meta")}), f"`state.{field}` must be on the device of"),
        (state.reorder(torch.tensor([0])), r"`state` must have the shapes \[.*\] for these inputs"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call(**given, state=other)
    if name in ("kernel", "window"):
        with pytest.raises(ValueError, match=r"`state` must have the shapes"):
            read(state.reorder(torch.tensor([0])))


def test_what_a_state_is_read_by():
    state = abc_write(X, X, ALPHA)
    with pytest.raises(ValueError, match=r"`q` must be \(2, n 2, T, 4\) .* but is \(1, 2, 5, 4\)"):
        abc_read(X[:1], state)
    with pytest.raises(TypeError, match="`state.keys` must be a Tensor"):
        abc_read(X, None)
    with pytest.raises(ValueError, match=rf"`q` {FOUR}"):
        window_read(X[:, 0], window_write(X, X, Window(3)), Window(3))
    _, queue = window_steps()
    with pytest.raises(ValueError, match=r"`state` must .*\(2, 2, 6, 4\).* has .*\(2, 2, 3, 4\)"):
        window_steps(window=Window(3, dilation=2), state=queue)


def test_a_state_that_cannot_be_overwritten():
    state = MemoryState.empty(X, X, ALPHA)
    expanded = state._replace(keys=state.keys[:1].expand_as(state.keys))
    with pytest.raises(ValueError, match="`in_place` needs contiguous tensors, but `state.keys`"):
        step(state=expanded, in_place=True)
    with pytest.raises(ValueError, match="`in_place` needs keys and values of their own in"):
        step(state=state._replace(values=state.keys), in_place=True)


# --- Layers


def control(name, **sizes):
    return make_control(name, Sizes(**dict(embed_dim=8, slots=4, heads=2, head_dim=4) | sizes))


abc_layer = partial(ABCAttention, embed_dim=8, num_heads=2, slots=4)
shares = partial(ABCAttention, embed_dim=8, num_heads=2)
memory_layer = partial(GlobalMemoryAttention, embed_dim=8, num_heads=2)
slot_layer = partial(MemorySlotAttention, embed_dim=8, num_heads=2)
HEADS = "`num_heads` must divide `embed_dim` 8, but is 3 instead"
DROPOUT = "`dropout` must be from 0 to below 1, but is"
LAYERS = [
    *((made, dict(num_heads=3), HEADS) for made in (abc_layer, memory_layer, slot_layer)),
    (abc_layer, dict(num_heads="2"), "`num_heads` must be an int, but is '2' instead"),
    (abc_layer, dict(dropout="0.1"), DROPOUT),
    *((made, dict(dropout=1.0), DROPOUT) for made in (memory_layer, slot_layer)),
    (abc_layer, dict(slots=0), "`slots` must be at least 1, but is 0"),
    (shares, {}, "`slots` is required, unless `control` is a Control"),
    (abc_layer, dict(control="x"), "`control` must be one of .*mlp.*, but is 'x' instead"),
    (abc_layer, dict(control=[1]), "`control` must be a str or a Control or a LayerControl, but"),
    (abc_layer, dict(activation="tanh"), "`activation` must be one of exp, sigmoid, relu, but"),
    (abc_layer, dict(stride=2), "control 'mlp' has no option `stride`"),
    (abc_layer, dict(control="dilated", stride=2.5), "`stride` must be an int, but is 2.5"),
    (abc_layer, dict(control="rfa", rfa_gate="no"), "`rfa_gate` must be a bool, but is 'no'"),
    (abc_layer, dict(control="linformer", max_length=-1), "`max_length` must be at least 0, but"),
    (abc_layer, dict(control="rfa", slots=3), "`slots` must be even with RFA, .* but is 3"),
    (abc_layer, dict(control="local_global", local_window=4), "`local_window` must be from 1 to 3"),
    (abc_layer, dict(control="global", global_positions=(1, 1)), "`global_positions` must be diff"),
    (abc_layer, dict(control="global", global_positions=(1.5,)), "must be a tuple of ints, but"),
    (abc_layer, dict(control="global", global_positions=(*range(5),)), "at most 4 tokens"),
    (abc_layer, dict(control="workspace", causal=True), "WorkspaceControl has no causal form"),
    (
        abc_layer,
        dict(control="workspace", source_dim=7),
        "`source_dim` must be a multiple of the 2",
    ),
    (abc_layer, dict(causal=True, source_dim=8), "`source_dim` must be None for causal .* is 8"),
    (abc_layer, dict(control="elu", share_control=True), "`share_control` must be False for the"),
    # A control of another layer
    (abc_layer, dict(control=control("mlp"), slots=5), "`slots` must be the 4 of `control`, but"),
    (shares, dict(control=control("workspace"), causal=True), "WorkspaceControl has no causal"),
    (shares, dict(control=control("elu")), "layers cannot share ELUControl; give its name"),
    (shares, dict(control=control("mlp"), activation="exp"), "options belong to the name of a"),
    (shares, dict(control=control("mlp"), share_control=True), "`share_control` must be False"),
    (
        shares,
        dict(control=control("window", kind="encoder"), source_dim=8),
        "WindowControl of encoder attention .* cross attention",
    ),
    (
        shares,
        dict(control=control("window", kind="causal")),
        "Control of causal or cross attention",
    ),
    # A global memory
    (memory_layer, dict(sparsity="x"), "`sparsity` must be one of chunks, lsh, window, but is x"),
    (memory_layer, dict(chunk_size=0), "`chunk_size` must be at least 1, but is 0 instead"),
    (memory_layer, dict(window=-1), "`window` must be at least 0, but is -1 instead"),
    (memory_layer, dict(buckets=3), "`buckets` must be even, but is 3 instead"),
    (memory_layer, dict(memory_projections="qk"), '`memory_projections` must be .* but is "qk"'),
    (memory_layer, dict(rounds=2), "`rounds` must be left out with `sparsity` 'chunks'"),
    # Memory slots
    (slot_layer, dict(buckets=31), "`buckets` must be even, .* but is 31 instead"),
    (slot_layer, dict(max_distance=8), "`max_distance` must be above the 8 distances .* is 8 inst"),
    (
        slot_layer,
        dict(relative_positions=False, buckets=8),
        "`buckets` must be left out without `relative_",
    ),
    (slot_layer, dict(head_dim=0), "`head_dim` must be at least 1, but is 0 instead"),
    (partial(SlotPositionBias, 8, 2), dict(scale=0), "`scale` must be above 0, but is 0 instead"),
    # Random features
    *(
        (partial(RandomFeatures, 2, 4, **wrong), {}, message)
        for wrong, message in ((dict(features=5), "`features` must be even, .*, but is 5 instead"),)
    ),
]


@pytest.mark.parametrize("call, wrong, message", LAYERS)
def test_arguments_of_layers(call, wrong, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(**wrong)


CAUSAL, ENCODER = abc_layer(causal=True), abc_layer()
CROSS = abc_layer(source_dim=6)
CENTRED, SLOTS = abc_layer(control="window"), slot_layer()
MEMORY = memory_layer(sparsity="chunks")
SOURCE, X4 = torch.randn(2, 5, 6), torch.randn(2, 3, 5, 8)
CENTRED_SEES = "without `source_dim` sees the tokens around each query of `x`; set `source_dim`"
INPUTS = [
    (ENCODER, (SOURCE,), r"`x` must be \(B, length, 8\), but is \(2, 5, 6\) instead"),
    (CAUSAL.step, (X8[:0],), r"`x` must be .* none of them empty, but is \(0, 5, 8\) instead"),
    (CROSS, (X8, X8), r"`source` must be \(B, length, 6\), .*\(2, 5, 8\) instead"),
    (CROSS.write, (SOURCE[:, :0],), "`source` must be .* none of them empty"),
    (CROSS, (X8, SOURCE[:1]), "`source` must have the 2 rows of `x`, but has 1 instead"),
    (CROSS, (X8,), "cross attention, which `source_dim` selects, needs a `source`"),
    (CROSS.read, (SOURCE, CROSS.write(SOURCE)), r"`x` must be \(B, length, 8\)"),
    (ENCODER, ([1],), "`x` must be a Tensor, but is of the type list instead"),
    (CROSS.write, ([1],), "`source` must be a Tensor, but is of the type list instead"),
    (ENCODER, (X8, MASK), r"`source` must be \(B, length, 8\), .* but is \(2, 5\) instead"),
    (CROSS.write, (SOURCE, MASK.int()), MASKED),
    (CAUSAL, (X8, X8), "causal attention reads its own `x`, but was given a `s"),
    (CAUSAL.write, (X8,), "`write` needs causal=False; a causal layer has `step`"),
    (ENCODER.step, (X8,), "`step` needs causal attention, but .* causal=False"),
    # The queue of a source is not what encoder attention reads.
    (CENTRED, (X8, X8 + 1), CENTRED_SEES),
    (CENTRED.write, (X8,), CENTRED_SEES),
    (MEMORY, (X8[0], X8), r"`x` must be \(B, S, 8\), but is \(5, 8\) instead"),
    (MEMORY, (X8, X8[:1]), r"`memory` must be \(2, M, 8\), but is \(1, 5, 8\) instead"),
    (MEMORY, (X8, [1]), "`memory` must be a Tensor, but is of the type list instead"),
    (SLOTS, (X8, X4), r"`tokens` must be \(B, K, S, 8\), .* \(2, 5, 8\)"),
    (SLOTS, (X4, X4[:, :2]), r"`memory` must be \(2, 3, M, 8\), but is \(2, 2, 5"),
    (SLOTS, (X4, X4[:, :, :0]), "`memory` must have at least one memory token, but"),
    (SLOTS, (X4, [1]), "`memory` must be a Tensor, but is of the type list instead"),
    (
        partial(SLOTS, position_bias=zeros(3, 2, 7, 10)),
        (X4, X4[:, :, :2]),
        r"`position_bias` must be \(3, 2, 7, 11\), but is \(3, 2",
    ),
    *(
        (partial(layer, key_padding_mask=MASK[:, 1:]), args, "`key_padding_mask` must be .* of tor")
        for layer, args in (
            (CAUSAL, [X8]), (CAUSAL.step, [X8]), (CROSS, [X8, SOURCE]), (MEMORY, [X8, X8]),
            (SLOTS, [X4, X4]),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("call, given, message", INPUTS)
def test_inputs_of_layers(call, given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(*given)


@pytest.mark.parametrize("name", ["mlp", "clustering", "window", "elu", "linformer"])
@pytest.mark.parametrize("method", ["step", "read"])
def test_a_state_of_another_layer(name, method):
    """Of another control, of other rows, and of another number of slots."""
    argument = "state" if method == "step" else "memory"

    kind = {"causal": True} if method == "step" else {"source_dim": 8}

    def made(name, slots=4):
        return abc_layer(control=name, slots=slots, max_positions=9, **kind)

    def state(layer):
        return layer.step(X8)[1] if method == "step" else layer.write(X8)

    layer = made(name)
    own, other = state(layer), state(made("mlp" if name == "window" else "window"))
    call = getattr(layer, method)
    for wrong in (1, other):
        with pytest.raises(TypeError, match=f"`{argument}` must be a .*, but is of the type "):
            call(X8, wrong)
    with pytest.raises(ValueError, match=rf"`{argument}\.{own._fields[0]}` must be \(1, "):
        call(X8[:1], own)
    if name != "elu":  # the number of features is fixed
        with pytest.raises(ValueError, match=rf"`{argument}\.{own._fields[0]}` must be \(2, "):
            call(X8, state(made(name, slots=5)))
