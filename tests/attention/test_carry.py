"""Memories carried over sentences, against one sentence after another and against one long text."""

from functools import partial

import pytest
import torch
from cases import TOLERANCE, Inputs, assert_all_close, run
from pairwise import pairwise

from fairseq_memattn.attention import MemoryState
from fairseq_memattn.attention.controls import Control, Tokens
from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.attention.nn.carried import DocumentMemory, SentenceGate
from fairseq_memattn.attention.ops.carry import Carry, before_sentences, merge, naive
from fairseq_memattn.attention.ops.common import EMPTY, is_written
from fairseq_memattn.attention.ops.kernel.chunked import KernelState

BATCH, HEADS, SLOTS, WIDTH = 2, 2, 3, 4


def drawn(seed, rows, shared, dtype, device="cpu"):
    """A memory with a slot that is empty in the first row."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (rows, HEADS, SLOTS, WIDTH)
    keys, values = (torch.randn(sizes, generator=generator) for _ in range(2))
    log_mass = 3 * torch.randn(rows, 1 if shared else HEADS, SLOTS, generator=generator)
    log_mass[0, :, 0] = EMPTY
    keys[0, :, 0] = values[0, :, 0] = 0
    return [x.to(device, dtype).requires_grad_() for x in (keys, values, log_mass)]


def read_mass(state):
    """What of a state is defined: of a slot that is empty, that its mass is log(0), and no more."""
    written = is_written(state.log_mass).unsqueeze(3)
    return state.keys * written, state.values * written, state.log_mass.clamp(min=-1e3)


@pairwise(
    sentences=[2, 3, 7], shared=[False, True], gated=[True, False], started=[True, False],
    dtype=TOLERANCE,
)  # fmt: skip
def test_before_sentences(sentences, shared, gated, started, dtype, device):
    def outputs(function, dtype):
        written = drawn(1, BATCH * sentences, shared, dtype, device)
        start = drawn(2, BATCH, shared, dtype, device)
        logits = drawn(3, BATCH * sentences, shared, dtype, device)[2].detach()
        gate = logits.clamp(min=-5).sigmoid().requires_grad_()

        def call(*args):
            memories, log_gate = MemoryState(*args[:3]), gate.log() if gated else None
            begin = MemoryState(*args[3:6]) if started else None
            return read_mass(function(memories, log_gate, begin, sentences))

        leaves = [*written, *(start if started else []), *([gate] if gated else [])]
        named = Inputs(**{f"leaf {number}": leaf for number, leaf in enumerate(leaves)})
        return run(call, named, allow_unused=True)

    expected = outputs(naive.before_sentences, torch.float64)
    assert_all_close(outputs(before_sentences, dtype), expected, TOLERANCE[dtype])


def test_merging_is_associative_and_has_a_neutral_element():
    a, b, c = (MemoryState(*drawn(seed, 3, False, torch.float64)) for seed in range(3))
    torch.testing.assert_close(merge(merge(a, b), c), merge(a, merge(b, c)))
    empty = MemoryState(*(torch.zeros_like(x) for x in a[:2]), torch.full_like(a.log_mass, EMPTY))
    for merged in (merge(a, empty), merge(empty, a)):
        torch.testing.assert_close(read_mass(merged), read_mass(a))


CONTROLS = {
    "mlp": dict(slots=SLOTS),
    "rfa": dict(slots=6),
    "elu": dict(slots=4),
    "local_mlp": dict(slots=7, sink_tokens=1, local_window=3),
}
BY_CONTROL = pytest.mark.parametrize("control", CONTROLS)


def sentences_of_one_text(causal, control="mlp"):
    """A layer, its text (B, K T, E) with padding after each sentence, and the mask."""
    torch.manual_seed(1)
    options = CONTROLS[control]
    layer = ABCAttention(8, HEADS, control=control, causal=causal, **options).double().eval()
    x = torch.randn(BATCH, 3 * 5, 8, dtype=torch.float64)
    mask = torch.zeros(BATCH, 3, 5, dtype=torch.bool)
    mask[0, 0, 4] = mask[1, 1, 3:] = mask[1, 2, 2:] = True
    return layer, x, mask.flatten(1)


@BY_CONTROL
def test_without_gates_sentences_are_one_text(control):
    layer, x, mask = sentences_of_one_text(True, control)
    rows = [y.unflatten(1, (3, 5)).flatten(0, 1) for y in (x, mask)]
    q, k, v = layer.project(rows[0], rows[0])
    tokens = Tokens(*rows)
    found, after = layer.control.attend_from(q, k, v, tokens, Carry(3, None, None), causal=True)
    q, k, v = layer.project(x, x)
    whole = layer.control.attend(q, k, v, Tokens(x, mask), causal=True)
    whole = whole.unflatten(2, (3, 5)).transpose(1, 2).flatten(0, 1)
    real = ~rows[1][:, None, :, None]
    torch.testing.assert_close(found * real, whole * real)
    _, state = layer.control.step(q, k, v, Tokens(x, mask), None)
    for ours, theirs in zip(after, state, strict=True):
        if ours.is_floating_point():  # positions are those of rotations, which there are none of
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("control", ["mlp", "rfa"])
@pytest.mark.parametrize("causal", [True, False])
def test_all_sentences_at_once_are_one_after_another(causal, control):
    """Outputs, gradients and the state after, of controls that have a form of their own."""
    layer, x, mask = sentences_of_one_text(causal, control)
    rows = [y.unflatten(1, (3, 5)).flatten(0, 1) for y in (x, mask)]
    gate = torch.randn(6, *layer.control.gate_sizes).double().sigmoid().log().requires_grad_()
    start = MemoryState(*drawn(2, BATCH, False, torch.float64))
    if control == "rfa":
        start = KernelState(torch.randn(2, HEADS, 6, 4).double(), torch.rand(2, HEADS, 6).double())
        start = KernelState(*(part.requires_grad_() for part in start))
    found = []
    for attend in (layer.control.attend_from, partial(Control.attend_from, layer.control)):
        inputs = *layer.project(rows[0], rows[0]), Tokens(*rows), Carry(3, gate, start)
        out, after = attend(*inputs, causal=causal)
        out = out * ~rows[1][:, None, :, None] if causal else out
        after = after if control == "rfa" else read_mass(after)
        total = sum(y.square().sum() for y in (out, *after[:2]))
        found.append(
            (out, *after, *torch.autograd.grad(total, [gate, *start, layer.k_proj.weight]))
        )
    torch.testing.assert_close(*found)


@BY_CONTROL
@pytest.mark.parametrize("kind", ["decay", "sentence"])
def test_a_pass_in_parts_is_the_whole_pass(kind, control):
    """Three sentences at once, or one after another from the memory of those before."""
    layer, x, mask = sentences_of_one_text(False, control)
    rows = [y.unflatten(1, (3, 5)).flatten(0, 1) for y in (x, mask)]
    gate = SentenceGate(8, *layer.control.gate_sizes, kind).double()
    if gate.weight is not None:
        torch.nn.init.normal_(gate.weight)

    def attend(rows, sentences, start):
        q, k, v = layer.project(rows[0], rows[0])
        carry = Carry(sentences, gate(*rows), start)
        return layer.control.attend_from(q, k, v, Tokens(*rows), carry, causal=False)

    whole, last = attend(rows, 3, None)
    parts, state = [], None
    for sentence in range(3):
        part, state = attend([y[sentence::3] for y in rows], 1, state)
        parts.append(part)
    torch.testing.assert_close(torch.stack(parts, dim=1).flatten(0, 1), whole)
    torch.testing.assert_close(state, last)


def test_documents_are_stacked_and_selected():
    one, two = (
        DocumentMemory((MemoryState(*drawn(seed, 2, False, torch.float32)),), ()) for seed in (1, 2)
    )
    both = DocumentMemory.stacked([one, two])
    assert len(both.causal[0].keys) == 4 and both.cross == ()
    torch.testing.assert_close(both.reorder(torch.tensor([2, 3])), two)


def test_means_of_long_sources_in_half_precision():
    gate = SentenceGate(1, heads=1, slots=2, kind="sentence").half()
    torch.nn.init.ones_(gate.weight)
    source = torch.full((1, 2048, 1), 40.0, dtype=torch.half)
    mask = torch.zeros(1, 2048, dtype=torch.bool)
    assert torch.equal(gate(source, mask), gate(source))
    assert gate(source, mask).isfinite().all()
